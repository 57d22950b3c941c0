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

// A View is an unfinished image at a point in time. It serves reads while the image is written: bytes
// are saved to a file before they are overwritten (copy before write). It is a disk.Source.
//
// A View never blocks a write for long and never fails one. If it cannot save bytes, because there is
// no space or the limit is reached, the View is lost: its reads fail from then on.
type View struct {
	base   disk.Source     // the image, as it is now
	size   int64           // size of the disk in bytes, valid after base is closed
	limit  int64           // largest number of bytes to save
	onLost func(err error) // called once when the view is lost

	saveMu sync.Mutex // held while bytes are saved; locked before mu
	file   *os.File   // deleted file with the saved bytes, at the same offsets as in the image
	buf    []byte     // memory of viewSpan bytes; guarded by saveMu

	mu         sync.Mutex     // guards the fields below
	saved      *bitmap.Bitmap // parts of the image that are in file
	savedBytes int64          // number of saved bytes
	err        error          // why the view is lost; nil if it is valid
	closed     bool           // Close was called
}

const (
	// unit in which bytes are saved, in bytes
	viewGrain = 64 << 10

	// largest amount of bytes that is saved at once
	viewSpan = 1 << 20
)

// NewView returns a View of the image that base reads. The View owns base. It saves at most limit bytes
// in a file in dir, and calls onLost if it is lost. From now on all writers of the image must use
// Guard.
func NewView(base disk.Source, dir string, limit int64, onLost func(error)) (*View, error) {
	file, err := os.CreateTemp(dir, "view-")
	if err != nil {
		return nil, ioFault(err)
	}
	if err := os.Remove(file.Name()); err != nil { // a crash leaves no file
		return nil, errors.Join(err, file.Close())
	}
	return &View{
		base: base, size: base.Size(), limit: limit, onLost: onLost, file: file, saved: bitmap.New(base.Size(), viewGrain), buf: disk.AlignedMemory(viewSpan),
	}, nil
}

// Guard returns t, the image that is open for writing, with writes that do not change the View.
func (v *View) Guard(t disk.Target) disk.Target { return &guardedTarget{t, v} }

// A guardedTarget saves bytes for a View before it writes.
type guardedTarget struct {
	disk.Target
	view *View // View that bytes are saved for
}

// WriteAt saves the range for the View, then writes p.
func (g *guardedTarget) WriteAt(ctx context.Context, p []byte, off int64) error {
	g.view.saveRange(ctx, disk.Range{Off: off, Len: int64(len(p))})
	return g.Target.WriteAt(ctx, p, off)
}

// Zero saves r for the View, then zeroes it.
func (g *guardedTarget) Zero(ctx context.Context, r disk.Range) error {
	g.view.saveRange(ctx, r)
	return g.Target.Zero(ctx, r)
}

// saveRange saves the part of r that is not saved yet, before it changes. If that fails, the view is
// lost.
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

// saveFrom saves up to viewSpan unsaved bytes between at and end. It returns the offset at which it
// stopped.
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
	if v.savedBytes+r.Len > v.limit { // savedBytes changes only while saveMu is held
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

// isClosed reports whether the View is closed or lost, so that nothing need be saved.
func (v *View) isClosed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closed || v.err != nil
}

// isSaved reports whether the grain at off is in file.
func (v *View) isSaved(off int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.saved.Has(off)
}

// fail marks the View as lost, unless it is lost or closed already.
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

// Hints returns the hints of the image without a stream, which would ignore saved bytes.
func (v *View) Hints() disk.Hints {
	h := v.base.Hints()
	h.Stream = nil
	return h
}

// Extents reports all of r as data, because a hole of the image may be filled at any time.
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

// sameOrigin returns how many of the n bytes from off have the same origin. kept reports that this is
// the file, not the image.
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

// Close discards the saved bytes and closes the image. No reader may be running; writers of the image
// may continue.
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
