package migrate

import (
	"cmp"
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/workflow"
)

// Steps returns the steps of a cold run after preflight. Only commit crosses the point of no return.
// Names and order are part of the recorded state.
func Steps() []Step {
	return []Step{
		copyStep{},
		detectStep{},
		convertStep{},
		verifyStep{},
		commitStep{},
	}
}

// The flows. The names are part of the recorded state.
const (
	coldFlow = "migrate"      // flow of cold runs
	warmFlow = "migrate-warm" // flow of warm runs
)

// flowOf returns the name of the flow of a plan.
func flowOf(p journal.Plan) string {
	if p.Warm {
		return warmFlow
	}
	return coldFlow
}

// eventNames are the names of steps in events and times, by the recorded names of the steps. Steps that are
// not listed have the same name there. The recorded names are those of earlier versions, whose runs continue.
var eventNames = map[string]string{"freeze": "snapshot", "prove": "verify round", "look": "inspect", "put back": "restore"}

// A pipeline runs the steps of runs in the engine, each with a Run of the process that executes it.
type pipeline struct {
	engine *workflow.Engine // engine of the steps
	store  *journal.Store   // commands of the runs
	opts   *Options         // options of the Migrator
	runs   *localRuns       // runs of this process
	events *events          // journals and notifications
}

// state is the input of a step: plain data, all of it recorded.
type state struct {
	Plan  journal.Plan `json:"plan"`  // plan of the run
	Facts Facts        `json:"facts"` // results of the previous steps
}

// registerCold registers the flow of cold runs and its steps.
func (l *pipeline) registerCold() {
	workflow.RegisterStep(l.engine, stepPreflight, l.stepFunc(stepPreflight, runPreflight))
	names := []string{stepPreflight}
	for _, s := range Steps() {
		workflow.RegisterStep(l.engine, s.Name(), l.stepFunc(s.Name(), s.Run))
		names = append(names, s.Name())
	}
	workflow.Register(l.engine, coldFlow, func(c *workflow.Context, p journal.Plan) error {
		_, err := runSteps(c, p, Facts{}, names...)
		return err
	})
}

// runSteps runs some steps, each with the facts of the previous one, and returns the facts of the last.
func runSteps(c *workflow.Context, p journal.Plan, facts Facts, names ...string) (Facts, error) {
	for _, name := range names {
		var next Facts
		if err := c.Step(name, state{p, facts}, &next); err != nil {
			return next, err
		}
		facts = next
	}
	return facts, nil
}

// stepFunc returns the function of a step for the engine, which records the step by the given name. The
// function returns fault.Internal if this process does not execute the run.
func (l *pipeline) stepFunc(recorded string, run func(context.Context, *Run) error) func(context.Context, state) (Facts, error) {
	name := cmp.Or(eventNames[recorded], recorded)
	return func(ctx context.Context, s state) (Facts, error) {
		a := l.runs.runOf(s.Plan.ID)
		if a == nil {
			return Facts{}, fault.New(fault.Internal, "run %s continues without a process that executes it", s.Plan.ID)
		}
		a.beginStep(name)
		r := l.newRun(s.Plan, s.Facts, a, name)
		r.Record.Report(journal.Event{Kind: journal.StepStarted})
		began := l.opts.Now()
		if err := run(ctx, r); err != nil {
			return Facts{}, fmt.Errorf("%s: %w", name, err)
		}
		r.Record.AddStage(journal.StageTime{Name: name, Elapsed: l.opts.Now().Sub(began)})
		r.Record.Report(journal.Event{Kind: journal.StepDone})
		return r.Record.Facts, nil
	}
}

// newRun returns a run for a step, or for work outside of steps if its name is empty.
func (l *pipeline) newRun(p journal.Plan, f Facts, a *localRun, step string) *Run {
	return newRun(&Record{Plan: p, Facts: f, step: step, events: l.events}, a, l.store, l.opts)
}
