package migrate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
)

// TransferKind is the kind of transfer for which a run requests a slot. The values are those of package sched.
type TransferKind string

// PollInterval is how often a waiting run checks for commands and the time.
const PollInterval = time.Second

// Kinds of transfers.
const (
	First     TransferKind = "first"   // nothing of the VM was copied yet
	Again     TransferKind = "again"   // a warm round, or a copy that continues
	AtCutover TransferKind = "cutover" // warm run: the VM is about to be powered off, or is off
)

// A TransferSlot is a run's transfer slot. A run requests it before the source waits for the transfer (with a
// snapshot, or a VM that is off), and returns it when the data is copied: later work reads only local
// images. All steps of a run in this process share one TransferSlot. A step that transfers requests the slot if
// the run does not have it: after a crash it is the first step to do so. It is safe for concurrent use.
type TransferSlot struct {
	run     journal.ID                                                             // id of the run
	request func(ctx context.Context, s TransferKind) (giveBack func(), err error) // Environment.TransferSlot; nil grants slots at once
	store   *journal.Store                                                         // commands of the run
	opts    *Options                                                               // options of the Migrator

	mu       sync.Mutex // guards the fields below
	giveBack func()     // returns the slot; nil while the run has none
	closed   bool       // the run has ended here: it gets no other slot
}

// isHeld reports whether the run has its slot.
func (t *TransferSlot) isHeld() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.giveBack != nil
}

// keepSlot keeps the granted slot until Back. If the run has ended, it returns the slot at once, and
// fault.Canceled.
func (t *TransferSlot) keepSlot(giveBack func()) error {
	t.mu.Lock()
	over := t.closed
	if !over {
		t.giveBack = giveBack
	}
	t.mu.Unlock()
	if !over {
		return nil
	}
	giveBack()
	return fault.New(fault.Canceled, "the run was stopped while it waited for a transfer slot")
}

// Release returns the slot, if the run has it.
func (t *TransferSlot) Release() {
	t.mu.Lock()
	giveBack := t.giveBack
	t.giveBack = nil
	t.mu.Unlock()
	if giveBack != nil {
		giveBack()
	}
}

// closeSlot returns the slot, and prevents that the run gets another one.
func (t *TransferSlot) closeSlot() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.Release()
}

// Acquire returns when the run may transfer. A paused run requests no slot. A run that was paused while it
// waited returns the granted slot, and waits again.
func (t *TransferSlot) Acquire(ctx context.Context, s TransferKind) error {
	for t.request != nil && !t.isHeld() {
		if err := t.whilePaused(ctx); err != nil {
			return err
		}
		giveBack, err := t.request(ctx, s)
		if err != nil {
			return fmt.Errorf("wait for a transfer slot: %w", err)
		}
		if o, err := t.store.Command(t.run); err != nil || o == journal.Pause {
			giveBack()
			if err != nil {
				return err
			}
			continue
		}
		return t.keepSlot(giveBack)
	}
	return nil
}

// whilePaused returns when the run is not paused, or with ctx's error.
func (t *TransferSlot) whilePaused(ctx context.Context) error {
	for {
		o, err := t.store.Command(t.run)
		if err != nil || o != journal.Pause {
			return err
		}
		if err := t.opts.Sleep(ctx, PollInterval); err != nil {
			return err
		}
	}
}
