package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
	"github.com/decamp/decamp/internal/fault"
)

// A View is an unfinished image as it was at one moment, for those who read it while it is written
// on: whatever is about to be overwritten is kept in a file first (copy before write), and read from
// there. It is a disk.Source.
//
// It must never stand in the way of a writer. What cannot be kept, because there is no room or it
// is more than the View may keep, ends the View and not the write: it is torn then, and reads fail.
type View struct {
	base   disk.Source
	size   int64           // known also when base is closed
	limit  int64           // bytes that are kept at most
	onLost func(err error) // called once when the view is lost

	saveMu sync.Mutex // held while something is kept, and to end that for good
	file   *os.File   // without a name; a byte is where it is in the image
	buf    []byte

	mu         sync.Mutex // guards what follows
	saved      *bitmap.Bitmap
	savedBytes int64 // bytes
	err        error // why it is torn
	closed     bool
}

const (
	// viewGrain is the unit that is kept, in bytes.
	viewGrain = 64 << 10

	// viewSpan is how much is kept at once, in bytes of memory.
	viewSpan = 1 << 20
)

// NewView returns the image that base reads as it is now. It keeps most bytes at most, in a file in
// dir. base is closed with the View. All that writes to the image from now on has to be guarded.
func NewView(base disk.Source, dir string, most int64, torn func(error)) (*View, error) {
	file, err := os.CreateTemp(dir, "view-")
	if err != nil {
		return nil, ioFault(err)
	}
	if err := os.Remove(file.Name()); err != nil { // a crash leaves no file
		return nil, errors.Join(err, file.Close())
	}
	return &View{
		base: base, size: base.Size(), limit: most, onLost: torn, file: file, saved: bitmap.New(base.Size(), viewGrain), buf: disk.AlignedMemory(viewSpan),
	}, nil
}

// Guard wraps t, the image open for writing, so that writes do not change the View.
func (v *View) Guard(t disk.Target) disk.Target { return &guardedTarget{t, v} }

// guarded is an image that is written to while there is a View of it.
type guardedTarget struct {
	disk.Target
	view *View
}

func (g *guardedTarget) WriteAt(ctx context.Context, p []byte, off int64) error {
	g.view.saveRange(ctx, disk.Range{Off: off, Len: int64(len(p))})
	return g.Target.WriteAt(ctx, p, off)
}

func (g *guardedTarget) Zero(ctx context.Context, r disk.Range) error {
	g.view.saveRange(ctx, r)
	return g.Target.Zero(ctx, r)
}

// saveRange has all of r in the file, before it changes.
func (v *View) saveRange(ctx context.Context, r disk.Range) {
	r = r.Intersect(disk.Range{Len: v.Size()}) // an image that has grown since is larger
	for at := r.Off / viewGrain * viewGrain; at < r.End(); {
		next, err := v.saveFrom(ctx, at, r.End())
		if err != nil {
			v.fail(fmt.Errorf("keep what a round overwrites: %w", err))
			return
		}
		at = next
	}
}

// saveFrom saves the unsaved bytes from at to end, and returns where it stopped.
func (v *View) saveFrom(ctx context.Context, at, end int64) (next int64, err error) {
	v.saveMu.Lock()
	defer v.saveMu.Unlock()
	if v.isClosed() {
		return end, nil
	}
	if v.isSaved(at) {
		return at + viewGrain, nil
	}
	next = at + viewGrain
	for next < end && next-at < viewSpan && !v.isSaved(next) {
		next += viewGrain
	}
	r := disk.Range{Off: at, Len: next - at}.Intersect(disk.Range{Len: v.Size()})
	if v.savedBytes+r.Len > v.limit { // held changes only under saving
		return 0, fault.New(fault.Full, "more than %d MiB were overwritten meanwhile", v.limit>>20).
			WithHint("rehearse between two rounds: a longer --interval, or decamp pause, leaves the time for it")
	}
	p := v.buf[:r.Len]
	if err := v.base.ReadAt(context.WithoutCancel(ctx), p, r.Off); err != nil {
		return 0, err
	}
	if _, err := v.file.WriteAt(p, r.Off); err != nil {
		return 0, ioFault(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.saved.Set(r)
	v.savedBytes += r.Len
	return next, nil
}

// isClosed reports whether the View has no readers any more.
func (v *View) isClosed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closed || v.err != nil
}

func (v *View) isSaved(off int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.saved.Has(off)
}

// fail reports that the image at that point in time is lost.
func (v *View) fail(err error) {
	v.mu.Lock()
	first := v.err == nil && !v.closed
	if first {
		v.err = err
	}
	v.mu.Unlock()
	if first {
		v.onLost(err)
	}
}

// Size returns the size of the disk at that moment.
func (v *View) Size() int64 { return v.size }

// Hints returns the hints of the image, which cannot be streamed past saved parts.
func (v *View) Hints() disk.Hints {
	h := v.base.Hints()
	h.Stream = nil
	return h
}

// Extents reports everything as data: holes of the image may be filled meanwhile.
func (v *View) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r, Kind: disk.Data}}, disk.CheckRange(v.Size(), r)
}

// ReadAt fills p from off.
func (v *View) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := disk.CheckRange(v.Size(), disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	for len(p) > 0 {
		n, kept, err := v.sameOrigin(off, int64(len(p)))
		if err != nil {
			return err
		}
		if kept {
			_, err = v.file.ReadAt(p[:n], off)
		} else {
			err = v.base.ReadAt(ctx, p[:n], off)
		}
		if err != nil {
			return err
		}
		// A piece saved meanwhile was read too late: it is written only after it is saved.
		if now, still, err := v.sameOrigin(off, n); err != nil {
			return err
		} else if still != kept || now < n {
			continue
		}
		p, off = p[n:], off+n
	}
	return nil
}

// sameOrigin returns how many of the n bytes from off are in the same place, and whether that is the file.
func (v *View) sameOrigin(off, n int64) (same int64, kept bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err != nil {
		return 0, false, v.err
	}
	kept = v.saved.Has(off)
	end := off/viewGrain*viewGrain + viewGrain
	for end < off+n && v.saved.Has(end) == kept {
		end += viewGrain
	}
	return min(n, end-off), kept, nil
}

// Close discards the saved data. There must be no readers; writers of the image may continue.
func (v *View) Close() error {
	v.saveMu.Lock()
	defer v.saveMu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil
	}
	v.closed = true
	return errors.Join(v.base.Close(), v.file.Close())
}
