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

// errGone is what a part that is gone answers. Nobody is told: its error is kept.
var errGone = errors.New("this destination is left out")

// part is one run's end of a transfer that several share.
type part struct {
	member *Member
	ctx    context.Context
	job    transport.Job

	shared    *sharedTransfer // as of when the transfer begins
	isLeaving atomic.Bool     // its run was canceled
	using     sync.RWMutex    // held for reading by whoever uses the target or the manifest

	once        sync.Once
	present     context.Context // ends when this part is over: the transfer ended, or it left
	endPresence context.CancelFunc
	gone        <-chan struct{} // closed then
	result      blockcopy.Result
	err         error
}

func newPart(ctx context.Context, m *Member, job transport.Job) *part {
	p := &part{member: m, ctx: ctx, job: job}
	p.present, p.endPresence = context.WithCancel(context.Background())
	p.gone = p.present.Done()
	return p
}

// runIfPresent calls f with the target and the manifest, unless the part is gone. If f fails, it
// leaves; but not if ctx ended, which is the whole transfer's end and no fault of its own.
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

// pace waits until the part's run may ask for so many bytes, while the part is there. A run
// without a budget need not wait.
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

func (p *part) isGone() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// fail makes the part leave, at once: no further use begins.
func (p *part) fail(err error) { p.finish(blockcopy.Result{}, err) }

// finish says how the part ended. Only the first word counts.
func (p *part) finish(res blockcopy.Result, err error) {
	p.once.Do(func() {
		p.result, p.err = res, err
		p.endPresence()
		p.shared.partGone()
	})
}

// departWait is how long a part whose run was canceled stays, for the others to be canceled,
// too: an operator who stops a command stops all of them.
const departWait = time.Second

// leaveTransfer ends the part of a run that was canceled. If all are, the transfer is canceled, and
// makes safe what it has before it ends. If not, the part leaves as it is.
func (p *part) leaveTransfer(err error) {
	if !p.shared.markLeaving(p) {
		select {
		case <-p.gone:
		case <-time.After(departWait):
		}
	}
	if !p.shared.allLeaving() {
		p.fail(err)
	}
	<-p.gone
}

// waitUnused returns when the target and the manifest of a part that is gone are not used any
// more.
func (p *part) waitUnused() {
	p.using.Lock()
	defer p.using.Unlock()
}

// writeRange takes the chunks of r off the manifest, as far as it lists them, before f changes
// what the target has there.
func (p *part) writeRange(ctx context.Context, r disk.Range, f func() error) error {
	return p.runIfPresent(ctx, func() error {
		if err := p.unlistChunks(r); err != nil {
			return err
		}
		return f()
	})
}

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
