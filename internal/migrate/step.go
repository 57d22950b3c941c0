package migrate

import (
	"context"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/flow"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/trial"
)

// A Step is one stage of a migration.
type Step interface {
	Name() string

	// Run does the step and adds what it found to r.Facts. It may run again after a crash
	// at any point of itself, and then does only what is left.
	Run(ctx context.Context, r *Run) error

	// Undo removes what Run left. It is right also if Run never ran.
	Undo(ctx context.Context, r *Run) error
}

// Steps is the pipeline. Only commit crosses the point of no return. Names and order are
// part of the recorded state.
func Steps() []Step {
	return []Step{
		copyStep{},
		detectStep{},
		convertStep{},
		verifyStep{},
		commitStep{},
	}
}

// Facts are what the steps found out so far. They are plain data: flow records them.
type Facts struct {
	VM       *inventory.VM       `json:"vm,omitempty"`       // preflight: as it was then, powered off
	Images   []targets.Image     `json:"images,omitempty"`   // preflight, in the order of VM.Disks; copy adds the roots
	Guest    []guest.Report      `json:"guest,omitempty"`    // detect, in the order of Images
	Metadata map[int32][]int64   `json:"metadata,omitempty"` // detect, the chunks that it read, by disk
	EFI      *efi.State          `json:"efi,omitempty"`      // detect, what goes with the VM of its firmware
	Profile  targets.Hardware    `json:"profile,omitempty"`  // convert
	Verified []Verified          `json:"verified,omitempty"` // verify, in the order of Images
	Trial    *trial.Report       `json:"trial,omitempty"`    // verify, where a trial boot was asked for
	Warnings []inventory.Warning `json:"warnings,omitempty"` // from all steps
	Stages   []plan.Stage        `json:"stages,omitempty"`   // where the time went
	Warm     *Warm               `json:"warm,omitempty"`     // of a warm run
	Outage   *plan.Outage        `json:"outage,omitempty"`   // commit, of a warm run; nil where it is not known when it began

	Started *targets.Started `json:"started,omitempty"` // commit, where that was asked for

	Conversion *Conversion `json:"conversion,omitempty"` // convert, for virtio
}

// A Run is the execution of a plan as a step sees it.
type Run struct {
	Plan   plan.Plan
	Facts  Facts
	Rig    Rig
	Permit Permit

	opts  Options
	m     *Migrator
	turn  *turn
	sight *sight
	stand *stand // of a warm run
	step  string
}

const (
	flowName  = "migrate"
	preflight = "preflight"
)

// state is what crosses to a step: plain data, all of it recorded.
type state struct {
	Plan  plan.Plan `json:"plan"`
	Facts Facts     `json:"facts"`
}

// register gives the engine the flow and its steps.
func (m *Migrator) register() {
	flow.RegisterStep(m.engine, preflight, m.stepFunc(preflight, runPreflight))
	for _, s := range Steps() {
		flow.RegisterStep(m.engine, s.Name(), m.stepFunc(s.Name(), s.Run))
	}
	flow.Register(m.engine, flowName, func(c *flow.Context, p plan.Plan) error {
		facts, err := stepAfter(c, preflight, state{Plan: p})
		for _, s := range Steps() {
			if err != nil {
				return err
			}
			facts, err = stepAfter(c, s.Name(), state{p, facts})
		}
		return err
	})
	m.registerWarm()
}

func stepAfter(c *flow.Context, name string, s state) (Facts, error) {
	var next Facts
	err := c.Step(name, s, &next)
	return next, err
}

// stepFunc makes a flow step of a function on Run.
func (m *Migrator) stepFunc(name string, run func(context.Context, *Run) error) func(context.Context, state) (Facts, error) {
	return func(ctx context.Context, s state) (Facts, error) {
		r, err := m.newRun(name, s)
		if err != nil {
			return Facts{}, err
		}
		r.tell(plan.Event{Kind: plan.StepBegan})
		began := m.opts.Now()
		if err := run(ctx, r); err != nil {
			return Facts{}, fmt.Errorf("%s: %w", name, err)
		}
		r.addStage(plan.Stage{Name: name, Elapsed: m.opts.Now().Sub(began)})
		r.tell(plan.Event{Kind: plan.StepDone})
		return r.Facts, nil
	}
}

func (m *Migrator) newRun(step string, s state) (*Run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.runs[s.Plan.ID]
	if a == nil {
		return nil, fault.New(fault.Internal, "run %s goes on without anybody attending it", s.Plan.ID)
	}
	a.late = a.late || step == commitStep{}.Name()
	return &Run{Plan: s.Plan, Facts: s.Facts, Rig: a.rig, Permit: a.permit, opts: m.opts, m: m, turn: &a.turn, sight: &a.sight, stand: &a.stand, step: step}, nil
}

// retry calls fn until it succeeds, fails for a reason that does not pass, or has failed
// Options.Attempts times without getting further. fn reports whether it got further.
func (r *Run) retry(ctx context.Context, diskKey int32, fn func() (further bool, err error)) error {
	return r.retryTimes(ctx, r.opts.Attempts, diskKey, fn)
}

// busyAttempts is how often a VM that is busy is asked again: for some ten minutes.
const busyAttempts = 24

// retryBusy calls fn as retry does, for as long as a VM may be busy: it is moved to another
// host, or backed up, and takes neither snapshots nor orders to shut down.
func (r *Run) retryBusy(ctx context.Context, fn func() error) error {
	return r.retryTimes(ctx, max(busyAttempts, r.opts.Attempts), 0, func() (bool, error) { return false, fn() })
}

// retryTimes is retry with another bound on failures that are fault.Transient.
func (r *Run) retryTimes(ctx context.Context, transient int, diskKey int32, fn func() (further bool, err error)) error {
	for failed := 1; ; failed++ {
		further, err := fn()
		if further {
			failed = 1
		}
		most := r.opts.Attempts
		if fault.Is(err, fault.Transient) {
			most = transient
		}
		if err == nil || ctx.Err() != nil || !passing(err) || failed >= most {
			return err
		}
		r.tell(plan.Event{Kind: plan.StepRetried, Disk: diskKey, Failure: plan.FailureOf(err)})
		r.opts.Log.Warn("retrying", "run", r.Plan.ID, "step", r.step, "disk", diskKey, "err", err)
		if err := r.opts.Sleep(ctx, backOff(failed)); err != nil {
			return err
		}
	}
}

func passing(err error) bool {
	k := fault.KindOf(err)
	return k == fault.Transient || k == fault.Unreachable
}

// backOff doubles from one second to thirty.
func backOff(failed int) time.Duration {
	return min(time.Second<<min(failed-1, 10), 30*time.Second)
}
