package fanout

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/transport"
)

// sharedTransfer is one transfer of a disk for several runs. Each run has a part of it.
type sharedTransfer struct {
	parts  []*part            // one part for each run; does not change
	left   atomic.Int64       // number of parts that are present
	cancel context.CancelFunc // ends the transfer
}

// newSharedTransfer returns the transfer of parts, and its context, which ends when no part is present.
func newSharedTransfer(parts []*part) (context.Context, *sharedTransfer) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parts[0].ctx))
	f := &sharedTransfer{parts: parts, cancel: cancel}
	f.left.Store(int64(len(parts)))
	for _, p := range parts {
		p.shared = f
	}
	return ctx, f
}

// partGone counts a part that ended. It cancels the transfer if no run wants it any more.
func (f *sharedTransfer) partGone() {
	f.left.Add(-1)
	if f.allLeaving() {
		f.cancel()
	}
}

// markLeaving records that the run of p was canceled. If all runs were, it cancels the transfer and
// returns true.
func (f *sharedTransfer) markLeaving(p *part) bool {
	p.isLeaving.Store(true)
	if !f.allLeaving() {
		return false
	}
	f.cancel()
	return true
}

// allLeaving reports whether no run wants the transfer to continue.
func (f *sharedTransfer) allLeaving() bool {
	return !slices.ContainsFunc(f.parts, func(p *part) bool { return !p.isGone() && !p.isLeaving.Load() })
}

// finish ends all present parts with the result of the transfer.
func (f *sharedTransfer) finish(res blockcopy.Result, err error) {
	for _, p := range f.parts {
		p.finish(res, err)
	}
}

// combinedJob returns the job for the inner transport: all targets, manifests and budgets combined. All
// runs request the same disk.
func (f *sharedTransfer) combinedJob() transport.Job {
	j := f.parts[0].job
	j.Target, j.Progress = target{f}, f.reportProgress
	if j.Manifest != nil {
		j.Manifest = commonManifest{f}
	}
	if j.ReadBack != nil {
		j.ReadBack = f.readBack
	}
	if slices.ContainsFunc(f.parts, func(p *part) bool { return p.job.Pace != nil }) {
		j.Pace, j.Free = f.pace, f.isFree
	}
	return j
}

// reportProgress passes the totals to the present runs.
func (f *sharedTransfer) reportProgress(p blockcopy.Progress) {
	for _, part := range f.parts {
		if part.job.Progress != nil && !part.isGone() {
			part.job.Progress(p)
		}
	}
}

// isFree reports whether no part's Pace must be called.
func (f *sharedTransfer) isFree() bool {
	return !slices.ContainsFunc(f.parts, func(p *part) bool { return p.job.Paced() })
}

// pace waits for the budget of the first present part: the disk is read once for all. It fails when no
// part is present.
func (f *sharedTransfer) pace(ctx context.Context, bytes int64) error {
	for _, p := range f.parts {
		if err := p.pace(ctx, bytes); !errors.Is(err, errGone) {
			return err
		}
	}
	return f.joinErrors()
}

// forEach calls do for every part concurrently, and returns when all calls have. Parts whose do fails
// leave. It fails when no part is present, or ctx ended.
func (f *sharedTransfer) forEach(ctx context.Context, do func(*part) error) error {
	var wg sync.WaitGroup
	for _, p := range f.parts[1:] {
		wg.Go(func() { _ = do(p) }) // p stores its error
	}
	_ = do(f.parts[0])
	wg.Wait()
	if f.left.Load() == 0 {
		return f.joinErrors()
	}
	return ctx.Err()
}

// joinErrors waits until no part is present, and joins their errors.
func (f *sharedTransfer) joinErrors() error {
	var errs []error
	for _, p := range f.parts {
		<-p.gone
		errs = append(errs, p.err)
	}
	return errors.Join(errs...)
}

// target is a disk.Target that writes to the targets of all parts. If one fails, only its part leaves.
type target struct{ *sharedTransfer }

var _ disk.Target = target{}

// Size is part of disk.Target.
func (t target) Size() int64 { return t.parts[0].job.Target.Size() }

// WriteAt is part of disk.Target. The slowest target determines its duration.
func (t target) WriteAt(ctx context.Context, p []byte, off int64) error {
	return t.forEach(ctx, func(to *part) error {
		return to.writeRange(ctx, disk.Range{Off: off, Len: int64(len(p))}, func() error { return to.job.Target.WriteAt(ctx, p, off) })
	})
}

// Zero is part of disk.Target.
func (t target) Zero(ctx context.Context, r disk.Range) error {
	return t.forEach(ctx, func(to *part) error {
		return to.writeRange(ctx, r, func() error { return to.job.Target.Zero(ctx, r) })
	})
}

// Sync is part of disk.Target.
func (t target) Sync(ctx context.Context) error {
	return t.forEach(ctx, func(to *part) error {
		return to.runIfPresent(ctx, func() error { return to.job.Target.Sync(ctx) })
	})
}

// Hints is part of disk.Target. It returns hints that suit all targets: the largest request, and the
// lowest number of streams.
func (t target) Hints() disk.Hints {
	h := t.parts[0].job.Target.Hints()
	for _, p := range t.parts[1:] {
		o := p.job.Target.Hints()
		h.Request, h.Align = max(h.Request, o.Request), max(h.Align, o.Align)
		if o.Streams > 0 && (h.Streams == 0 || o.Streams < h.Streams) {
			h.Streams = o.Streams
		}
	}
	return h
}

// Finish is part of disk.Target. It only syncs: each run finishes its own image.
func (t target) Finish(ctx context.Context) error { return t.Sync(ctx) }

// Close is part of disk.Target. It does nothing: each run closes its own image.
func (t target) Close() error { return nil }
