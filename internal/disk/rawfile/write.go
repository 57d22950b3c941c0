package rawfile

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
)

// WriteAt writes all of p at off. In mode Direct, whole blocks in aligned memory go directly to the
// medium.
func (f *File) WriteAt(ctx context.Context, p []byte, off int64) error {
	r := disk.Range{Off: off, Len: int64(len(p))}
	if err := f.checkWrite(ctx, r); err != nil {
		return err
	}
	if f.written != nil {
		f.written.Set(r)
	}
	if f.serialize {
		f.writeMu.Lock()
		defer f.writeMu.Unlock()
	}
	if err := f.writeAt(p, off); err != nil {
		return f.newFault("write", r, err)
	}
	return nil
}

// checkWrite returns an error if r is outside the disk or ctx has ended.
func (f *File) checkWrite(ctx context.Context, r disk.Range) error {
	if err := disk.CheckRange(f.size, r); err != nil {
		return err
	}
	return ctx.Err()
}

// writeAt writes p in the file's mode.
func (f *File) writeAt(p []byte, off int64) error {
	switch f.mode {
	case Direct:
		return f.writeSplit(p, off)
	case Uncached:
		return writeUncached(f.cached, p, off)
	}
	if err := writeAll(f.cached, p, off); err != nil {
		return err
	}
	return f.behind.addWrite(disk.Range{Off: off, Len: int64(len(p))})
}

// writeSplit writes the whole blocks of p directly, and the rest at both ends through the page cache.
func (f *File) writeSplit(p []byte, off int64) error {
	head, body := splitBlocks(off, len(p))
	if err := writeAll(f.cached, p[:head], off); err != nil {
		return err
	}
	p, off = p[head:], off+int64(head)
	if err := f.writeBlocks(p[:body], off); err != nil {
		return err
	}
	return writeAll(f.cached, p[body:], off+int64(body))
}

// splitBlocks returns how many of the n bytes at off precede the first whole block, and how many are
// whole blocks.
func splitBlocks(off int64, n int) (head, body int) {
	head = min(int(-off&(Align-1)), n)
	return head, (n - head) &^ (Align - 1)
}

// writeBlocks writes whole blocks directly. off and len(p) must be multiples of Align.
func (f *File) writeBlocks(p []byte, off int64) error {
	if disk.IsAligned(p) {
		return f.writeDirect(p, off)
	}
	b := f.buffers.take()
	defer f.buffers.give(b)
	for len(p) > 0 {
		n := copy(b, p)
		if err := f.writeDirect(b[:n], off); err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// writeDirect writes aligned memory. Data that the kernel does not accept in this way goes through the
// page cache, which determines the error: the device requires larger blocks, or the disk is full.
func (f *File) writeDirect(p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	n, err := writeOnce(f.direct, p, off)
	if n == len(p) {
		return nil
	}
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return writeAll(f.cached, p[n:], off+int64(n))
}

// writeAll writes p through the page cache.
func writeAll(file *os.File, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := writeOnce(file, p, off)
		if err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// writeUncached writes p so that its pages leave the cache after the write-back.
func writeUncached(file *os.File, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := pwritev2(int(file.Fd()), p, off, unix.RWF_DONTCACHE)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// writeOnce makes one write, which may be short. It returns an error if nothing was written.
func writeOnce(file *os.File, p []byte, off int64) (n int, err error) {
	err = retryInterrupted(func() error {
		n, err = unix.Pwrite(int(file.Fd()), p, off)
		return err
	})
	if err == nil && n == 0 {
		err = io.ErrShortWrite
	}
	return max(n, 0), err
}

// retryInterrupted calls call until it is not interrupted by a signal.
func retryInterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
