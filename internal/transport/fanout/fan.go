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

// fan is one transfer of a disk for several runs.
type sharedTransfer struct {
	parts  []*part
	left   atomic.Int64 // parts that are not gone
	cancel context.CancelFunc
}

// newSharedTransfer returns the transfer of parts, and its context: it ends when all are gone.
func newSharedTransfer(parts []*part) (context.Context, *sharedTransfer) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parts[0].ctx))
	f := &sharedTransfer{parts: parts, cancel: cancel}
	f.left.Store(int64(len(parts)))
	for _, p := range parts {
		p.shared = f
	}
	return ctx, f
}

// partGone is told that a part is gone.
func (f *sharedTransfer) partGone() {
	f.left.Add(-1)
	if f.allLeaving() {
		f.cancel()
	}
}

// markLeaving is told that a part's run was canceled. It reports whether the transfer is, too.
func (f *sharedTransfer) markLeaving(p *part) bool {
	p.isLeaving.Store(true)
	if !f.allLeaving() {
		return false
	}
	f.cancel()
	return true
}

// allLeaving reports whether nobody is there who wants the transfer to go on.
func (f *sharedTransfer) allLeaving() bool {
	return !slices.ContainsFunc(f.parts, func(p *part) bool { return !p.isGone() && !p.isLeaving.Load() })
}

// finish tells those that are still there how the transfer ended.
func (f *sharedTransfer) finish(res blockcopy.Result, err error) {
	for _, p := range f.parts {
		p.finish(res, err)
	}
}

// combinedJob is what the transport is asked for. All runs ask for the same disk.
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

func (f *sharedTransfer) reportProgress(p blockcopy.Progress) {
	for _, part := range f.parts {
		if part.job.Progress != nil && !part.isGone() {
			part.job.Progress(p)
		}
	}
}

// isFree reports whether pace need not ask any of them.
func (f *sharedTransfer) isFree() bool {
	return !slices.ContainsFunc(f.parts, func(p *part) bool { return p.job.Paced() })
}

// pace asks one of those that are still there: the disk is read once for all.
func (f *sharedTransfer) pace(ctx context.Context, bytes int64) error {
	for _, p := range f.parts {
		if err := p.pace(ctx, bytes); !errors.Is(err, errGone) {
			return err
		}
	}
	return f.joinErrors()
}

// forEach calls do for every part, at once, and returns when all did. Those that fail leave.
// It fails when nobody is left, or ctx ended.
func (f *sharedTransfer) forEach(ctx context.Context, do func(*part) error) error {
	var wg sync.WaitGroup
	for _, p := range f.parts[1:] {
		wg.Go(func() { _ = do(p) }) // p keeps its error
	}
	_ = do(f.parts[0])
	wg.Wait()
	if f.left.Load() == 0 {
		return f.joinErrors()
	}
	return ctx.Err()
}

// joinErrors joins the errors of all parts.
func (f *sharedTransfer) joinErrors() error {
	var errs []error
	for _, p := range f.parts {
		<-p.gone
		errs = append(errs, p.err)
	}
	return errors.Join(errs...)
}

// target writes to the targets of all.
type target struct{ *sharedTransfer }

var _ disk.Target = target{}

func (t target) Size() int64 { return t.parts[0].job.Target.Size() }

func (t target) WriteAt(ctx context.Context, p []byte, off int64) error {
	return t.forEach(ctx, func(to *part) error {
		return to.writeRange(ctx, disk.Range{Off: off, Len: int64(len(p))}, func() error { return to.job.Target.WriteAt(ctx, p, off) })
	})
}

func (t target) Zero(ctx context.Context, r disk.Range) error {
	return t.forEach(ctx, func(to *part) error {
		return to.writeRange(ctx, r, func() error { return to.job.Target.Zero(ctx, r) })
	})
}

func (t target) Sync(ctx context.Context) error {
	return t.forEach(ctx, func(to *part) error {
		return to.runIfPresent(ctx, func() error { return to.job.Target.Sync(ctx) })
	})
}

// Hints are those that suit all: the largest request, as many streams as the slowest takes.
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

// Finish and Close are what each run does with its own image.
func (t target) Finish(ctx context.Context) error { return t.Sync(ctx) }

func (t target) Close() error { return nil }
