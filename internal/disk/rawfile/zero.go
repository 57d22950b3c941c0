package rawfile

import (
	"bytes"
	"context"
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
)

// zeroStep is the largest range in bytes that is zeroed between two checks of the context. A device may
// have to write all of it.
const zeroStep = 1 << 30

// Zero makes r read as zeros. Parts of a new file that were never written need no change. Otherwise it
// punches holes or, if the file system has none, writes zeros.
func (f *File) Zero(ctx context.Context, r disk.Range) error {
	if err := f.checkWrite(ctx, r); err != nil {
		return err
	}
	if f.written == nil {
		return f.punchData(ctx, r)
	}
	for rest := r; ; {
		run := f.written.Next(rest)
		if run.Empty() {
			return nil
		}
		if err := f.punchData(ctx, run); err != nil {
			return err
		}
		rest = disk.Range{Off: run.End(), Len: r.End() - run.End()}
	}
}

// punchData zeroes the parts of r that are not holes.
func (f *File) punchData(ctx context.Context, r disk.Range) error {
	for off := nextData(f.cached, r); off < r.End(); {
		step := disk.Range{Off: off, Len: min(zeroStep, r.End()-off)}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f.zeroStepped(step); err != nil {
			return f.newFault("zero", step, err)
		}
		off = nextData(f.cached, disk.Range{Off: step.End(), Len: r.End() - step.End()})
	}
	return nil
}

// zeroStepped zeroes r, at most zeroStep bytes, by the cheapest means that works.
func (f *File) zeroStepped(r disk.Range) error {
	fd := int(f.cached.Fd())
	err := retryInterrupted(func() error {
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, r.Off, r.Len)
	})
	if f.device && isRefused(err) {
		err = blockZeroOut(f.cached, r)
	}
	if isRefused(err) {
		return f.writeZeros(r)
	}
	return err
}

// isRefused reports whether a call does not exist, or does not work for this file.
func isRefused(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) ||
		errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTTY)
}

// blockZeroOut lets the kernel write zeros to a device.
func blockZeroOut(device *os.File, r disk.Range) error {
	span := [2]uint64{uint64(r.Off), uint64(r.Len)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), unix.BLKZEROOUT, uintptr(unsafe.Pointer(&span)))
	if errno != 0 {
		return errno
	}
	return nil
}

// writeZeros writes zeros over data. It reads first: NFS before 4.2 cannot report holes, and writing
// would fill all of them.
func (f *File) writeZeros(r disk.Range) error {
	b := f.buffers.take()
	defer f.buffers.give(b)
	for off := r.Off; off < r.End(); off += bufferSize {
		p := b[:min(bufferSize, r.End()-off)]
		if err := readAll(f.cached, p, off); err != nil {
			return err
		}
		if bytes.Equal(p, zeros[:len(p)]) {
			continue
		}
		clear(p)
		if err := f.writeBuffer(p, off); err != nil {
			return err
		}
	}
	return nil
}

// writeBuffer is writeAt for a buffer of the pool, whose owner must not wait for another one. Therefore
// it writes through the page cache unless the offset is aligned.
func (f *File) writeBuffer(p []byte, off int64) error {
	if off&(Align-1) != 0 {
		return writeAll(f.cached, p, off)
	}
	return f.writeAt(p, off)
}

// zeros is compared with data; it is never written.
var zeros [bufferSize]byte

// nextData returns the offset of the first data in r, or the end of r. If the file system cannot report
// holes, all of r is data.
func nextData(file *os.File, r disk.Range) int64 {
	if r.Empty() {
		return r.End()
	}
	off, err := unix.Seek(int(file.Fd()), r.Off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return r.End()
	case err != nil:
		return r.Off
	}
	return min(off, r.End())
}

// nextHole returns the offset of the first hole in r, or the end of r.
func nextHole(file *os.File, r disk.Range) int64 {
	off, err := unix.Seek(int(file.Fd()), r.Off, unix.SEEK_HOLE)
	if err != nil {
		return r.End()
	}
	return min(off, r.End())
}
