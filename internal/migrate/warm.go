package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/flow"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
)

// A warm run copies while the VM runs, in rounds, and switches it off for the last one:
//
//	prepare    preflight for a VM that runs
//	track      change tracking on, if it was off
//	freeze     a snapshot of ours; the first one's moment is what the images begin with
//	round      bring the images up to the snapshot, remove it
//	prove      read back what the round wrote
//	look       after the first round: what is inside, and whether it can be converted
//	wait       for the next round, or for the cutover
//	...        freeze, round, prove, wait
//	power off  the outage begins
//	last       bring the images up to the VM as it is now, finish and seal them
//	detect, convert, verify, commit, as in a cold run
//	put back   change tracking as it was found
//
// A step that finds a disk larger than it is on record does nothing but put that on record
// (see grow.go): freeze and round are done again then, so is the last round, and instead of
// powering off a VM that runs there is another round.
//
// What is changed on the host was found out, and recorded, by an earlier step: prepare says
// whether changes were tracked, wait whether the VM ran, and a snapshot's name follows from
// the number of rounds. So there is no moment at which a crash makes decamp forget how it
// found the VM.
//
// What the images hold is never older than the moment on record (Warm.Since): so whatever
// dies in between, a round that takes all that changed since then makes them right. The
// moment moves on when a round is on record, not before.
const warmFlow = "migrate-warm"

// The steps that only a warm run has. Names and order are part of the recorded state.
const (
	stepPrepare  = "prepare"
	stepTrack    = "track"
	stepFreeze   = "freeze"
	stepRound    = "round"
	stepProve    = "prove"
	stepLook     = "look"
	stepWait     = "wait"
	stepPowerOff = "power off"
	stepLast     = "last round"
	stepPutBack  = "put back"
)

// Warm is what a warm run found out so far.
type Warm struct {
	Tracked bool                         `json:"tracked"`         // changes were tracked before
	Blind   bool                         `json:"blind,omitempty"` // and cannot be: every round compares all of it
	Since   map[int32]inventory.ChangeID `json:"since,omitempty"` // the moment before which no proven chunk is
	Rounds  []Round                      `json:"rounds,omitempty"`
	Cutover bool                         `json:"cutover,omitempty"` // no further round while the VM runs
	WasOn   bool                         `json:"wasOn,omitempty"`   // before it was switched off for the last round
	Off     time.Time                    `json:"off,omitzero"`      // when it was; not known if a crash came between
	Found   bool                         `json:"found,omitempty"`   // images that are not of this record: nobody knows of which moment
	Grown   map[int32]int64              `json:"grown,omitempty"`   // bytes that disks had, which became larger since the last round

	// ToLook says that the images are still to be looked into. It is not set in what was recorded
	// before there was such a step.
	ToLook bool `json:"toLook,omitempty"`

	Approached bool `json:"approached,omitempty"` // the round before the cutover is done, or to be
}

// Round is one pass over the disks.
type Round struct {
	Began  time.Time     `json:"began"`  // when the disks were frozen
	Took   time.Duration `json:"took"`   // from there until the images were up to date
	Read   int64         `json:"read"`   // bytes of the source
	Copied int64         `json:"copied"` // bytes that were written

	Compared bool          `json:"compared,omitempty"` // a disk that changed nobody knew where, as it will again
	Proved   time.Duration `json:"proved,omitempty"`   // reading back what was written

	Delivered time.Duration `json:"delivered,omitempty"` // bringing the target up to it, where that can be done early
}

// registerWarm gives the engine the flow of warm runs and the steps it has of its own.
func (m *Migrator) registerWarm() {
	for name, run := range map[string]func(context.Context, *Run) error{
		stepPrepare: prepare, stepTrack: track, stepFreeze: freeze, stepRound: round, stepProve: prove, stepLook: look,
		stepWait: wait, stepPowerOff: powerOffForCutover, stepLast: lastRound, stepPutBack: putBack,
	} {
		flow.RegisterStep(m.engine, name, m.stepFunc(name, run))
	}
	flow.Register(m.engine, warmFlow, func(c *flow.Context, p plan.Plan) error {
		facts, err := steps(c, p, Facts{}, stepPrepare, stepTrack)
		for err == nil && !facts.Warm.Cutover {
			if facts, err = rounds(c, p, facts); err == nil {
				facts, err = steps(c, p, facts, stepPowerOff)
			}
		}
		for last := true; err == nil && last; last = !facts.rooted() {
			facts, err = steps(c, p, facts, stepLast)
		}
		if err != nil {
			return err
		}
		_, err = steps(c, p, facts, detectStep{}.Name(), convertStep{}.Name(), verifyStep{}.Name(), commitStep{}.Name(), stepPutBack)
		return err
	})
}

// rounds goes on until the cutover. One that was not done is done again.
func rounds(c *flow.Context, p plan.Plan, facts Facts) (Facts, error) {
	var err error
	for err == nil && !facts.Warm.Cutover {
		done := len(facts.Warm.Rounds)
		facts, err = steps(c, p, facts, stepFreeze, stepRound)
		if err == nil && len(facts.Warm.Rounds) > done {
			facts, err = proveAndWait(c, p, facts)
		}
	}
	return facts, err
}

// proveAndWait is what follows a round. A look that was not done has another round before it.
func proveAndWait(c *flow.Context, p plan.Plan, facts Facts) (Facts, error) {
	facts, err := steps(c, p, facts, stepProve)
	if err == nil && facts.Warm.ToLook {
		facts, err = steps(c, p, facts, stepLook)
	}
	if err != nil || facts.Warm.ToLook {
		return facts, err
	}
	return steps(c, p, facts, stepWait)
}

// rooted reports whether the last round was done: it ends with a root for every image.
func (f Facts) rooted() bool {
	return !slices.ContainsFunc(f.Images, func(img targets.Image) bool { return img.Root == "" })
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

// prepare is the preflight of a VM that runs. It changes nothing.
func prepare(ctx context.Context, r *Run) error {
	live, err := r.live()
	if err != nil {
		return err
	}
	vm, err := r.plannedVM(ctx)
	if err != nil {
		return err
	}
	if err := r.retry(ctx, 0, func() (bool, error) { return false, live.MayChange(ctx, vm.Ref) }); err != nil {
		return err
	}
	if err := r.refuse(vm, Permit{PowerOff: true, Warm: true}); err != nil {
		return err
	}
	if d := Unfrozen(vm); d != nil {
		return fault.New(fault.Unsupported, "disk %d is %s: no snapshot holds it", d.Key, d.Mode).
			WithHint("move the VM powered off, without --warm")
	}
	images, err := r.place(ctx, vm)
	if err != nil {
		return err
	}
	r.Facts.VM, r.Facts.Images, r.Facts.Warm = vm, images, &Warm{Tracked: vm.ChangeTracking, Found: slices.ContainsFunc(images, begun), ToLook: true}
	for _, w := range vm.Warnings {
		if !w.Blocks {
			r.warn(w)
		}
	}
	return nil
}

// track turns change tracking on. Where it cannot be had the run goes on without.
func track(ctx context.Context, r *Run) error {
	live, err := r.live()
	if err != nil || r.Facts.Warm.Tracked {
		return err
	}
	err = r.retry(ctx, 0, func() (bool, error) { return false, live.Track(ctx, r.Facts.VM.Ref, true) })
	if errors.Is(err, ErrReadOnly) || !fault.Is(err, fault.Unsupported) {
		return err // a login that was refused says nothing of what can be had
	}
	r.Facts.Warm.Blind = true
	r.warn(inventory.Warning{
		Code: "no-change-tracking", Text: fmt.Sprintf("changes cannot be tracked (%v): every round, and the last one in the outage, reads all that the disks have allocated: %s; the first round shows what it takes",
			err, FullPass(r.Facts.VM)),
		Remedy: fault.HintOf(err),
	})
	return nil
}

// putBack leaves the source as it was found, but off. The VM is published: what cannot be
// put back now is told, and no reason to fail.
func putBack(ctx context.Context, r *Run) error {
	live, err := r.live()
	if err != nil {
		return err
	}
	err = r.retry(ctx, 0, func() (bool, error) { return false, r.untrack(ctx, live) })
	if err != nil && ctx.Err() == nil {
		r.warn(inventory.Warning{
			Code: "change-tracking-stays", Text: fmt.Sprintf("change tracking of the source could not be turned off again: %v", err),
			Remedy: "turn it off by hand if it is not wanted: ctkEnabled in the VM's advanced parameters",
		})
		return nil
	}
	return err
}

// untrack turns change tracking off if it was off.
func (r *Run) untrack(ctx context.Context, live Live) error {
	if w := r.Facts.Warm; w.Tracked || w.Blind {
		return nil
	}
	return live.Track(ctx, r.Facts.VM.Ref, false)
}
