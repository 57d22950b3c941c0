package vmdk

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/disk"
)

const (
	// number of bytes of the disk that are mapped and sorted at once. With grains of 512 bytes these are
	// up to 8192 runs.
	pieceSize = 4 << 20

	// largest number of bytes that one read fetches for several runs
	joinSize = 1 << 20

	// number of unneeded bytes for which one read of a local file is as fast as two. Copying them from the
	// page cache takes as long as a system call.
	joinGap = 8 << 10

	// length in bytes from which a run is read directly to its destination
	aloneSize = 64 << 10
)

// A reader is the state of one ReadAt. It is kept in a pool for the next call, which often continues at
// the end of this one.
type reader struct {
	disk   *Disk  // disk to read
	cursor cursor // cursor of the whole chain
	runs   []Run  // runs of the piece being read, data only
	buf    []byte // memory for bytes of a file from which several runs are copied; nil until needed
}

// ReadAt fills p from off. Data is read in the order of the files, not of the disk.
func (d *Disk) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := disk.CheckRange(d.Size(), disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r := d.readers.Get().(*reader)
	defer d.readers.Put(r)
	for len(p) > 0 {
		n := min(int64(len(p)), pieceSize-off%pieceSize)
		if err := r.readRuns(ctx, p[:n], off); err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

// readRuns fills p from off, within one piece. It first clears zeros and copies mapped memory, then
// reads the remaining runs in file order.
func (r *reader) readRuns(ctx context.Context, p []byte, off int64) error {
	if err := withFaultGuard(func() error { return r.sortRuns(ctx, p, off) }); err != nil {
		return err
	}
	slices.SortFunc(r.runs, inFileOrder)
	for rest := r.runs; len(rest) > 0; {
		n, end := joinedRuns(rest, r.disk.files[rest[0].File].gap)
		if err := r.readJoined(ctx, p, off, rest[:n], end); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// sortRuns clears the zeros of p, copies data from mapped memory, and stores all other runs in r.runs.
func (r *reader) sortRuns(ctx context.Context, p []byte, off int64) error {
	r.runs = r.runs[:0]
	return walkRuns(ctx, r.cursor, disk.Range{Off: off, Len: int64(len(p))}, func(run Run) bool {
		dst := p[run.Off-off : run.End()-off]
		switch {
		case run.Kind != Data:
			clear(dst)
		case r.disk.files[run.File].inMemory(run):
			r.disk.files[run.File].copyMapped(dst, run.At)
		default:
			r.runs = append(r.runs, run)
		}
		return true
	})
}

// inFileOrder compares two runs by file and offset, for slices.SortFunc.
func inFileOrder(a, b Run) int {
	if a.File != b.File {
		return cmp.Compare(a.File, b.File)
	}
	return cmp.Compare(a.At, b.At)
}

// joinedRuns returns the number of runs to read at once, and the offset in the file at which they end.
// runs must be in file order. One read may include up to gap unneeded bytes between two runs.
func joinedRuns(runs []Run, gap int64) (n int, end int64) {
	first := runs[0]
	end = first.At + first.storedLen()
	if first.storedLen() >= aloneSize {
		return 1, end
	}
	for n = 1; n < len(runs); n++ {
		next := runs[n]
		last := max(end, next.At+next.storedLen())
		if next.File != first.File || next.At-end > gap || last-first.At > joinSize {
			break
		}
		end = last
	}
	return n, end
}

// readJoined reads runs of one file, whose last byte is before end, and copies each to its position in
// p. p begins at offset off of the disk.
func (r *reader) readJoined(ctx context.Context, p []byte, off int64, runs []Run, end int64) error {
	f, start := r.disk.files[runs[0].File], runs[0].At
	if end-start < aloneSize {
		f.ahead.countRead(start)
	}
	if len(runs) == 1 && runs[0].Packed == 0 {
		return f.readAt(ctx, p[runs[0].Off-off:runs[0].End()-off], start)
	}
	end = min(end, f.size())
	b := r.buffer(end - start)
	if err := f.readAt(ctx, b, start); err != nil {
		return err
	}
	for _, run := range runs {
		dst := p[run.Off-off : run.End()-off]
		if err := f.copyRun(b[run.At-start:min(run.At+run.storedLen(), end)-start], run, dst); err != nil {
			return err
		}
	}
	return nil
}

// buffer returns n bytes of scratch memory, valid until the next call.
func (r *reader) buffer(n int64) []byte {
	if int64(cap(r.buf)) < n {
		r.buf = disk.AlignedMemory(max(n, joinSize))
	}
	return r.buf[:n]
}

// copyRun fills p with the bytes of run. stored are the run's bytes in the file; they are shorter at
// the end of the file, and missing bytes are zeros.
func (f *file) copyRun(stored []byte, run Run, p []byte) error {
	if run.Packed == 0 {
		clear(p[copy(p, stored):])
		return nil
	}
	if f.unpack == nil {
		return fmt.Errorf("%s has a packed grain at %d, and nothing to unpack it", f.name, run.At)
	}
	if err := f.unpack(stored, run, p); err != nil {
		return fmt.Errorf("unpack %s at %d: %w", f.name, run.At, err)
	}
	return nil
}

// walkRuns passes the runs of r to yield, in order and without gaps. It joins runs that continue each
// other, and stops when yield returns false.
func walkRuns(ctx context.Context, c cursor, r disk.Range, yield func(Run) bool) error {
	var held Run
	for off := r.Off; off < r.End(); off = held.End() {
		run, err := c.runAt(ctx, disk.Range{Off: off, Len: r.End() - off})
		switch {
		case err != nil:
			return err
		case held.isContinuedBy(run) && !held.Empty():
			held.Len += run.Len
		case !held.Empty() && !yield(held):
			return nil
		default:
			held = run
		}
	}
	if !held.Empty() {
		yield(held)
	}
	return nil
}
