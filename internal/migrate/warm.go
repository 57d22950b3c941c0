package migrate

import (
	"context"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/flow"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
)

// A warm run copies while the VM runs, in rounds, and switches it off for the last one:
//
//	prepare    preflight for a VM that runs; change tracking on, if it was off
//	freeze     a snapshot of ours; the first one's moment is what the images begin with
//	round      bring the images up to the snapshot, remove it
//	wait       for the next round, or for the cutover
//	...        freeze, round, wait
//	power off  the outage begins
//	last       bring the images up to the VM as it is now, finish and seal them
//	detect, convert, verify, commit, as in a cold run
//
// What the images hold is never older than the moment on record (Warm.Since): so whatever
// dies in between, a round that takes all that changed since then makes them right. The
// moment moves on when a round is on record, not before.
const warmFlow = "migrate-warm"

// The steps that only a warm run has. Names and order are part of the recorded state.
const (
	stepPrepare  = "prepare"
	stepFreeze   = "freeze"
	stepRound    = "round"
	stepWait     = "wait"
	stepPowerOff = "power off"
	stepLast     = "last round"
)

// Warm is what a warm run found out so far.
type Warm struct {
	Tracked  bool                         `json:"tracked"`            // changes were tracked before
	Blind    bool                         `json:"blind,omitempty"`    // and cannot be: every round compares all of it
	Since    map[int32]inventory.ChangeID `json:"since,omitempty"`    // the moment before which no proven chunk is
	Snapshot string                       `json:"snapshot,omitempty"` // the name of the one that is there now
	Rounds   []Round                      `json:"rounds,omitempty"`
	Cutover  bool                         `json:"cutover,omitempty"` // no further round while the VM runs
	WasOn    bool                         `json:"wasOn,omitempty"`   // when it was switched off for the last round
}

// Round is one pass over the disks.
type Round struct {
	Began  time.Time     `json:"began"`  // when the disks were frozen
	Took   time.Duration `json:"took"`   // from there until the images were up to date
	Read   int64         `json:"read"`   // bytes of the source
	Copied int64         `json:"copied"` // bytes that were written
}

// registerWarm gives the engine the flow of warm runs and the steps it has of its own.
func (m *Migrator) registerWarm() {
	for name, run := range map[string]func(context.Context, *Run) error{
		stepPrepare: prepare, stepFreeze: freeze, stepRound: round,
		stepWait: wait, stepPowerOff: powerOffForCutover, stepLast: lastRound,
	} {
		flow.RegisterStep(m.engine, name, m.stepFunc(name, run))
	}
	flow.Register(m.engine, warmFlow, func(c *flow.Context, p plan.Plan) error {
		facts, err := stepAfter(c, stepPrepare, state{Plan: p})
		for err == nil && !facts.Warm.Cutover {
			facts, err = steps(c, p, facts, stepFreeze, stepRound, stepWait)
		}
		if err != nil {
			return err
		}
		_, err = steps(c, p, facts, stepPowerOff, stepLast, detectStep{}.Name(), convertStep{}.Name(), verifyStep{}.Name(), commitStep{}.Name())
		return err
	})
}

// steps runs some of them, each with what the one before found out.
func steps(c *flow.Context, p plan.Plan, facts Facts, names ...string) (Facts, error) {
	for _, name := range names {
		var err error
		if facts, err = stepAfter(c, name, state{p, facts}); err != nil {
			return facts, err
		}
	}
	return facts, nil
}

// live returns the host of a warm run.
func (r *Run) live() (Live, error) {
	l, ok := r.Rig.Source.(Live)
	if !ok {
		return nil, fault.New(fault.Internal, "this source cannot be migrated warm")
	}
	return l, nil
}

// prepare is the preflight of a VM that runs.
func prepare(ctx context.Context, r *Run) error {
	live, err := r.live()
	if err != nil {
		return err
	}
	vm, err := r.plannedVM(ctx)
	if err != nil {
		return err
	}
	if err := r.refuse(vm, Permit{PowerOff: true}); err != nil {
		return err
	}
	for _, d := range vm.Disks {
		if d.Mode != "" && d.Mode != "persistent" {
			return fault.New(fault.Unsupported, "disk %d is %s: no snapshot holds it", d.Key, d.Mode).
				WithHint("move the VM powered off, without --warm")
		}
	}
	images, err := r.place(ctx, vm)
	if err != nil {
		return err
	}
	r.Facts.VM, r.Facts.Images, r.Facts.Warm = vm, images, &Warm{Tracked: vm.ChangeTracking}
	for _, w := range vm.Warnings {
		if !w.Blocks {
			r.warn(w)
		}
	}
	return r.track(ctx, live)
}

// track turns change tracking on. Where it cannot be had the run goes on without.
func (r *Run) track(ctx context.Context, live Live) error {
	if r.Facts.Warm.Tracked {
		return nil
	}
	err := live.Track(ctx, r.Facts.VM.Ref, true)
	if !fault.Is(err, fault.Unsupported) && !fault.Is(err, fault.Denied) {
		return err
	}
	r.Facts.Warm.Blind = true
	r.warn(inventory.Warning{
		Code: "no-change-tracking", Text: fmt.Sprintf("changes cannot be tracked (%v): every round reads all that the disks have allocated", err),
		Remedy: fault.HintOf(err),
	})
	return nil
}
