package migrate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
)

// Stage is the kind of transfer for which a run requests a slot. The values are those of package sched.
type Stage string

// LookEvery is how often a waiting run looks for orders and at the clock.
const LookEvery = time.Second

// Stages.
const (
	First     Stage = "first"   // nothing of the VM was copied yet
	Again     Stage = "again"   // a warm round, or a copy that goes on
	AtCutover Stage = "cutover" // warm run: the VM is about to be switched off, or is off
)

// A Turn is a run's transfer slot. A run requests it before the source waits for the transfer (with a
// snapshot, or a VM that is off), and returns it as soon as the data is here: later work reads only
// local images. All steps of a run in this process share one Turn.
//
// A step that transfers requests the slot if the run does not have it: after a crash it is the first
// one to do so.
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

// keep holds the granted slot until Back. When the run ends, the slot is returned at once, and the step
// must end.
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

// Take returns when the run may transfer. A paused run requests no slot, and a run that was paused
// during its wait returns the granted slot.
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
