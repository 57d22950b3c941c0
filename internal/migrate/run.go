package migrate

import (
	"context"
	"slices"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/targets"
)

// A Run contains what a step needs: the record of the run, the VM at its source, its images, its
// transfer slot, and the permissions. Steps pass on single parts if those are enough. A Run belongs to
// one step.
type Run struct {
	Record *Record       // plan, results and events
	VM     *SourceVM     // VM at its source
	Images *Images       // images at the target
	Slot   *TransferSlot // transfer slot of the run
	Retry  *Retrier      // repeats work that fails for a reason that passes

	Warm    WarmRun        // warm part of the run; nil unless this process executes a warm run
	Env     *Environment   // open connections
	Permit  Permit         // permissions of this call
	Options *Options       // options of the Migrator
	Store   *journal.Store // commands and files of the run

	local *localRun // state of the run in this process
}

// newRun returns a Run with the record rec and the state a of this process.
func newRun(rec *Record, a *localRun, store *journal.Store, o *Options) *Run {
	retry := &Retrier{record: rec, opts: o}
	return &Run{
		Record: rec,
		VM:     &SourceVM{record: rec, retry: retry, seen: &a.seen, rig: &a.rig, permit: a.permit, opts: o},
		Images: &Images{record: rec, target: a.rig.Target, rig: &a.rig, permit: a.permit, opts: o, warm: a.warm},
		Slot:   a.turn,
		Retry:  retry,

		Warm: a.warm, Env: &a.rig, Permit: a.permit, Options: o, Store: store,
		local: a,
	}
}

// WithFacts returns the run with other facts.
func (r *Run) WithFacts(f Facts) *Run { return r.withFacts(f, r.Record.step) }

// WithEventName returns the run with a copy of its facts, for work beside its steps. Its events have the given
// name in place of a step.
func (r *Run) WithEventName(name string) *Run { return r.withFacts(r.Record.Facts.cloneFacts(), name) }

// withFacts returns the run with other facts and another step for events. The stored record is
// unchanged.
func (r *Run) withFacts(f Facts, step string) *Run {
	rec := &Record{Plan: r.Record.Plan, Facts: f, step: step, events: r.Record.events}
	return newRun(rec, r.local, r.Store, r.Options)
}

// UnlessLate calls stop unless commit has begun: after that the run is not canceled.
func (r *Run) UnlessLate(stop func()) { r.local.unlessLate(stop) }

// Definition returns the VM as it is published.
func (r *Run) Definition() targets.Definition {
	def := targets.Definition{
		Progress: r.Record.Meter(0).Delivering, VM: r.Record.Facts.VM, Images: slices.Clone(r.Record.Facts.Images), Guest: r.Record.Facts.Guest, EFI: r.Record.Facts.EFI, Hardware: r.Record.Facts.Profile,
		Decamp: r.Options.Version, Warnings: r.Record.Facts.Warnings, Checks: r.Record.Facts.Checks(),
	}
	if c := r.Record.Facts.Conversion; c != nil {
		def.Converted = &c.Result
	}
	return def
}

// A Step is one stage of a migration. A crash may interrupt each method at any point.
type Step interface {
	Name() string // returns the name, which is part of the recorded state

	// Run executes the step and adds its results to r.Record.Facts. It may run again after a crash at
	// any point, and then does only the remaining work.
	Run(ctx context.Context, r *Run) error

	// Undo removes what Run left. It is right also if Run never ran.
	Undo(ctx context.Context, r *Run) error
}
