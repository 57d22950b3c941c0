package migrate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
)

// Stage is the kind of transfer that a run asks its turn for. The words are sched's.
type Stage string

// LookEvery is how often a waiting run looks for orders and at the clock.
const LookEvery = time.Second

// Stages.
const (
	First     Stage = "first"   // nothing of the VM was copied yet
	Again     Stage = "again"   // a warm round, or a copy that goes on
	AtCutover Stage = "cutover" // of a warm run: the VM is about to be switched off, or is
)

// A Turn is a run's right to transfer, while it has it. It is asked for before anything at the
// source waits for the transfer (a snapshot, a VM that is off), and given back as soon as the
// bytes are here: what follows reads only our images. All steps of a run that this process drives
// share one.
//
// A step that transfers asks if the run does not have its turn: after a crash it is the first
// to do so.
type Turn struct {
	run   journal.ID
	ask   func(ctx context.Context, s Stage) (giveBack func(), err error) // Rig.Turn
	store *journal.Store
	opts  *Options

	mu       sync.Mutex
	giveBack func() // not nil while the run has its turn
	over     bool   // the run is left: there is no other turn
}

// had reports whether the run has its turn.
func (t *Turn) had() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.giveBack != nil
}

// keep holds what was granted until Back. Once the run is left it is given back at once, and
// the step has to end.
func (t *Turn) keep(giveBack func()) error {
	t.mu.Lock()
	over := t.over
	if !over {
		t.giveBack = giveBack
	}
	t.mu.Unlock()
	if !over {
		return nil
	}
	giveBack()
	return fault.New(fault.Canceled, "the run was left while it waited for its turn")
}

// Back gives the turn back, if the run has it.
func (t *Turn) Back() {
	t.mu.Lock()
	giveBack := t.giveBack
	t.giveBack = nil
	t.mu.Unlock()
	if giveBack != nil {
		giveBack()
	}
}

// end gives the turn back for good.
func (t *Turn) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.Back()
}

// Take returns when the run may transfer. A run that is paused asks for nothing, and one
// that was paused while it stood in line gives back what it is granted.
func (t *Turn) Take(ctx context.Context, s Stage) error {
	for t.ask != nil && !t.had() {
		if err := t.whilePaused(ctx); err != nil {
			return err
		}
		giveBack, err := t.ask(ctx, s)
		if err != nil {
			return fmt.Errorf("wait for the turn: %w", err)
		}
		if o, err := t.store.Order(t.run); err != nil || o == journal.Pause {
			giveBack()
			if err != nil {
				return err
			}
			continue
		}
		return t.keep(giveBack)
	}
	return nil
}

// whilePaused returns when the run is not paused.
func (t *Turn) whilePaused(ctx context.Context) error {
	for {
		o, err := t.store.Order(t.run)
		if err != nil || o != journal.Pause {
			return err
		}
		if err := t.opts.Sleep(ctx, LookEvery); err != nil {
			return err
		}
	}
}
