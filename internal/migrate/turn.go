package migrate

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
)

// Stage is the kind of transfer that a run asks its turn for. The words are sched's.
type Stage string

// Stages.
const (
	First     Stage = "first"   // nothing of the VM was copied yet
	Again     Stage = "again"   // a warm round, or a copy that goes on
	AtCutover Stage = "cutover" // of a warm run: the VM is about to be switched off, or is
)

// A turn is a run's right to transfer, while it has it. It is asked for before anything at the
// source waits for the transfer (a snapshot, a VM that is off), and given back as soon as the
// bytes are here: what follows reads only our images. The zero turn is not had.
//
// A step that transfers asks if the run does not have its turn: after a crash it is the first
// to do so.
type turn struct {
	mu       sync.Mutex
	swept    bool   // what others may have left at the source is gone
	giveBack func() // not nil while the run has its turn
	over     bool   // nobody attends the run any more: there is no other turn
}

// had reports whether the run has its turn.
func (t *turn) had() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.giveBack != nil
}

// keep holds what was granted until back. Once the run is left it is given back at once, and
// the step has to end.
func (t *turn) keep(giveBack func()) error {
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

// back gives the turn back, if the run has it.
func (t *turn) back() {
	t.mu.Lock()
	giveBack := t.giveBack
	t.giveBack = nil
	t.mu.Unlock()
	if giveBack != nil {
		giveBack()
	}
}

// end gives the turn back for good.
func (t *turn) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.back()
}

// takeTurn returns when the run may transfer. A run that is paused asks for nothing, and one
// that was paused while it stood in line gives back what it is granted.
func (r *Run) takeTurn(ctx context.Context, s Stage) error {
	for r.Rig.Turn != nil && !r.turn.had() {
		if err := r.whilePaused(ctx); err != nil {
			return err
		}
		giveBack, err := r.Rig.Turn(ctx, s)
		if err != nil {
			return fmt.Errorf("wait for the turn: %w", err)
		}
		if o, err := r.m.store.Order(r.Plan.ID); err != nil || o == plan.Pause {
			giveBack()
			if err != nil {
				return err
			}
			continue
		}
		return r.turn.keep(giveBack)
	}
	return nil
}

// takeTurnToFreeze is takeTurn for a round: no snapshot stands, and grows, while the run is in
// line. One that a crash left goes before; there will be another. So do, at any rate, those that
// others left who drove the run.
func (r *Run) takeTurnToFreeze(ctx context.Context) error {
	if !r.turn.swept { // its steps come one after the other
		keep := r.snapshot()
		if r.Rig.Turn != nil {
			keep = ""
		}
		if err := r.thawAll(ctx, keep); err != nil {
			return err
		}
		r.turn.swept = true
	}
	return r.takeTurn(ctx, r.stage())
}

// whilePaused returns when the run is not paused.
func (r *Run) whilePaused(ctx context.Context) error {
	for {
		o, err := r.m.store.Order(r.Plan.ID)
		if err != nil || o != plan.Pause {
			return err
		}
		if err := r.opts.Sleep(ctx, lookEvery); err != nil {
			return err
		}
	}
}

// stage is that of a transfer while the VM stays as it is.
func (r *Run) stage() Stage {
	if slices.ContainsFunc(r.Facts.Images, begun) {
		return Again
	}
	return First
}

// begun reports whether something of an image may have been copied.
func begun(img targets.Image) bool {
	_, err := manifest.ReadInfo(img.Manifest)
	return err == nil
}
