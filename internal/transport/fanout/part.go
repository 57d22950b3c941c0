package fanout

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/transport"
)

// errGone is the error of uses of a part that ended. It is not reported: the part has the original
// error.
var errGone = errors.New("the transfer to this destination has ended")

// part is one run's part of a shared transfer. It is present until the transfer ends or the part
// leaves.
type part struct {
	member *Member         // run that the part belongs to
	ctx    context.Context // context of the run's Transfer
	job    transport.Job   // target, manifest and budget of the run

	shared    *sharedTransfer // transfer of the part; nil before it begins
	isLeaving atomic.Bool     // the run was canceled
	using     sync.RWMutex    // read-locked while a goroutine uses the target or the manifest

	once        sync.Once          // sets result and err once
	present     context.Context    // ends when the part does: the transfer ended, or the part left
	endPresence context.CancelFunc // cancels present
	gone        <-chan struct{}    // closed when present ends
	result      blockcopy.Result   // result of the transfer; zero if the part left
	err         error              // error of the transfer, or the reason for leaving
}

// newPart returns the part of a run that calls Transfer with ctx and job.
func newPart(ctx context.Context, m *Member, job transport.Job) *part {
	p := &part{member: m, ctx: ctx, job: job}
	p.present, p.endPresence = context.WithCancel(context.Background())
	p.gone = p.present.Done()
	return p
}

// runIfPresent calls f, which uses the target or the manifest, unless the part ended. If f fails, the
// part leaves. But if ctx ended, the whole transfer ends, and f's error is not the part's fault.
func (p *part) runIfPresent(ctx context.Context, f func() error) error {
	p.using.RLock()
	defer p.using.RUnlock()
	if p.isGone() {
		return errGone
	}
	err := f()
	if err != nil && ctx.Err() == nil {
		p.fail(err)
	}
	return err
}

// pace waits until the budget of the part's run allows so many bytes, or the part ends. A run without a
// budget does not wait.
func (p *part) pace(ctx context.Context, bytes int64) error {
	p.using.RLock()
	defer p.using.RUnlock()
	if p.isGone() {
		return errGone
	}
	if p.job.Pace == nil {
		return nil
	}
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.present, cancel)()
	err := p.job.Pace(waits, bytes)
	if err != nil && p.isGone() {
		return errGone
	}
	return err
}

// isGone reports whether the part ended.
func (p *part) isGone() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// fail makes the part leave. Running uses of it continue; no other begins.
func (p *part) fail(err error) { p.finish(blockcopy.Result{}, err) }

// finish ends the part with a result or an error. Only the first call has an effect.
func (p *part) finish(res blockcopy.Result, err error) {
	p.once.Do(func() {
		p.result, p.err = res, err
		p.endPresence()
		p.shared.partGone()
	})
}

// cancelGrace is the time in which a canceled run waits for the cancellation of the others: a user who
// stops a command stops all of its runs.
const cancelGrace = time.Second

// leaveTransfer ends the part of a canceled run. If all runs are canceled, the transfer is canceled
// too, and makes its data durable before it ends. Otherwise only this part leaves.
func (p *part) leaveTransfer(err error) {
	if !p.shared.markLeaving(p) {
		select {
		case <-p.gone:
		case <-time.After(cancelGrace):
		}
	}
	if !p.shared.allLeaving() {
		p.fail(err)
	}
	<-p.gone
}

// waitUnused waits until the target and the manifest of an ended part are not used any more.
func (p *part) waitUnused() {
	p.using.Lock()
	defer p.using.Unlock()
}

// writeRange drops the chunks of r from the manifest, if it lists them, and then calls f, which writes
// to the target.
func (p *part) writeRange(ctx context.Context, r disk.Range, f func() error) error {
	return p.runIfPresent(ctx, func() error {
		if err := p.unlistChunks(r); err != nil {
			return err
		}
		return f()
	})
}

// unlistChunks drops the listed chunks that overlap r, each sequence of them in one call.
func (p *part) unlistChunks(r disk.Range) error {
	if p.job.Manifest == nil {
		return nil
	}
	end := (r.End() + manifest.ChunkSize - 1) / manifest.ChunkSize
	for c := r.Off / manifest.ChunkSize; c < end; c++ {
		first := c
		for c < end && p.job.Manifest.Has(c) {
			c++
		}
		if c == first {
			continue
		}
		if err := p.job.Manifest.Drop(first, c-first); err != nil {
			return err
		}
	}
	return nil
}
