package migrate

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/flow"
	"github.com/decamp/decamp/internal/plan"
)

// A Step is one stage of a migration.
type Step interface {
	Name() string

	// Run does the step and adds what it found to r.Record.Facts. It may run again after a crash
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

// The steps that both kinds of runs have. The names are part of the recorded state.
const (
	stepPreflight = "preflight"
	stepCopy      = "copy"
	StepDetect    = "detect"
	StepConvert   = "convert"
	StepVerify    = "verify"
	StepCommit    = "commit"
)

// The flows. The names are part of the recorded state.
const (
	coldFlow = "migrate"
	warmFlow = "migrate-warm"
)

// flowOf is the pipeline of a plan.
func flowOf(p plan.Plan) string {
	if p.Warm {
		return warmFlow
	}
	return coldFlow
}

// state is what crosses to a step: plain data, all of it recorded.
type state struct {
	Plan  plan.Plan `json:"plan"`
	Facts Facts     `json:"facts"`
}

// register gives the engine the flow of cold runs and its steps.
func (m *Migrator) register() {
	flow.RegisterStep(m.engine, stepPreflight, m.stepFunc(stepPreflight, runPreflight))
	names := []string{stepPreflight}
	for _, s := range Steps() {
		flow.RegisterStep(m.engine, s.Name(), m.stepFunc(s.Name(), s.Run))
		names = append(names, s.Name())
	}
	flow.Register(m.engine, coldFlow, func(c *flow.Context, p plan.Plan) error {
		_, err := runSteps(c, p, Facts{}, names...)
		return err
	})
}

// WarmRuns is what surrounds the steps of a warm run. Package warm implements it.
type WarmRuns interface {
	// Ready is called before this process drives a run. It completes what the user permits by what
	// is on record.
	Ready(r *Run, p *Permit) (WarmRun, error)

	// LetGo removes what would burden the source while the run is stopped.
	LetGo(ctx context.Context, r *Run)

	// Restore leaves the VM at the source as it was found, but for its power.
	Restore(ctx context.Context, r *Run) error
}

// A WarmRun is a warm run while this process drives it.
type WarmRun interface {
	// Drive calls drive, which carries out the steps until they are done or its context ends. It ends
	// that context when the run is ordered to be given up.
	Drive(ctx context.Context, drive func(context.Context) error) error

	// Guard is called for an image of a disk that is opened to be written to. Writes go through what it
	// returns.
	Guard(key int32, t disk.Target) disk.Target
}

// AddWarm registers warm runs with the engine, which must not be launched yet. pipeline calls do with the
// facts so far and the names of the steps that are next, until the run is done.
func (m *Migrator) AddWarm(w WarmRuns, steps map[string]func(context.Context, *Run) error, pipeline func(do func(Facts, ...string) (Facts, error)) error) {
	m.warm = w
	for name, run := range steps {
		flow.RegisterStep(m.engine, name, m.stepFunc(name, run))
	}
	flow.Register(m.engine, warmFlow, func(c *flow.Context, p plan.Plan) error {
		return pipeline(func(facts Facts, names ...string) (Facts, error) { return runSteps(c, p, facts, names...) })
	})
}

// runSteps runs some steps, each with what the one before found out.
func runSteps(c *flow.Context, p plan.Plan, facts Facts, names ...string) (Facts, error) {
	for _, name := range names {
		var next Facts
		if err := c.Step(name, state{p, facts}, &next); err != nil {
			return next, err
		}
		facts = next
	}
	return facts, nil
}

// stepFunc makes a flow step of a function on Run.
func (m *Migrator) stepFunc(name string, run func(context.Context, *Run) error) func(context.Context, state) (Facts, error) {
	return func(ctx context.Context, s state) (Facts, error) {
		a := m.runs.of(s.Plan.ID)
		if a == nil {
			return Facts{}, fault.New(fault.Internal, "run %s goes on without anybody attending it", s.Plan.ID)
		}
		a.begin(name)
		r := m.newRun(s.Plan, s.Facts, a, name)
		r.Record.Tell(plan.Event{Kind: plan.StepBegan})
		began := m.opts.Now()
		if err := run(ctx, r); err != nil {
			return Facts{}, fmt.Errorf("%s: %w", name, err)
		}
		r.Record.AddStage(plan.Stage{Name: name, Elapsed: m.opts.Now().Sub(began)})
		r.Record.Tell(plan.Event{Kind: plan.StepDone})
		return r.Record.Facts, nil
	}
}

// newRun returns a run as a step sees it, or what is done outside of steps: its name is empty then.
func (m *Migrator) newRun(p plan.Plan, f Facts, a *attendance, step string) *Run {
	return newRun(&Record{Plan: p, Facts: f, step: step, events: m.events}, a, m.store, &m.opts)
}
