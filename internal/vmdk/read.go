package vmdk

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/disk"
)

const (
	// pieceSize is how much of the disk is mapped and sorted at once. Grains of 512 bytes
	// make 8192 runs of it at most.
	pieceSize = 4 << 20

	// joinSize is the most that is read of a file at once to take several runs from it.
	joinSize = 1 << 20

	// joinGap is the number of unneeded bytes that are read in a local file, in bytes: copying them
	// from the page cache takes as long as another system call.
	joinGap = 8 << 10

	// aloneSize is the length from which a run is read straight to where it belongs.
	aloneSize = 64 << 10
)

// A reader is what one ReadAt needs. It is kept for the next one, which often goes on
// where this one ended.
type reader struct {
	disk   *Disk
	cursor cursor
	runs   []Run  // runs of the piece being read, data only
	buf    []byte // file bytes that several runs are taken from
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

// readRuns fills p from off: first what takes no system call, then the data that does.
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

// sortRuns clears zeros, copies data in mapped memory, and lists the rest in runs.
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

func inFileOrder(a, b Run) int {
	if a.File != b.File {
		return cmp.Compare(a.File, b.File)
	}
	return cmp.Compare(a.At, b.At)
}

// joinedRuns returns how many of the runs, which are in file order, are best read at once if gap
// bytes are read over, and where in the file the last of their bytes ends.
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

// readJoined reads runs, which lie in one file up to end, to where they belong in p, which
// is the disk from off.
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

// buffer returns n bytes to read into.
func (r *reader) buffer(n int64) []byte {
	if int64(cap(r.buf)) < n {
		r.buf = disk.AlignedMemory(max(n, joinSize))
	}
	return r.buf[:n]
}

// copyRun fills p from the run's bytes in the file, which end early where the file does.
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

// walkRuns gives yield the runs of r from c, in order, without gaps, joined where one
// continues another. It stops when yield returns false.
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
