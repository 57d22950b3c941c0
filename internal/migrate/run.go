package migrate

import (
	"github.com/decamp/decamp/internal/plan"
)

// A Run is what a step works with: the record of the run, the VM at its source, its images, its right to
// transfer, and what the user allowed. Each part is passed on alone where it is enough. A Run belongs to
// one step.
type Run struct {
	Record *Record
	VM     *SourceVM
	Images *Images
	Turn   *Turn
	Retry  *Retrier

	Warm    WarmRun // nil unless this process drives a warm run
	Rig     *Rig
	Permit  Permit
	Options *Options
	Store   *plan.Store

	attendance *attendance
}

// newRun returns the parts of a run around its record.
func newRun(rec *Record, a *attendance, store *plan.Store, o *Options) *Run {
	retry := &Retrier{record: rec, opts: o}
	return &Run{
		Record: rec,
		VM:     &SourceVM{record: rec, retry: retry, sight: &a.sight, rig: &a.rig, permit: a.permit, opts: o},
		Images: &Images{record: rec, target: a.rig.Target, rig: &a.rig, permit: a.permit, opts: o, warm: a.warm},
		Turn:   a.turn,
		Retry:  retry,

		Warm: a.warm, Rig: &a.rig, Permit: a.permit, Options: o, Store: store,
		attendance: a,
	}
}

// With returns the run with other facts.
func (r *Run) With(f Facts) *Run { return r.with(f, r.Record.step) }

// Beside returns the run with a copy of its facts, for what is done beside its steps. Its events are those
// of name.
func (r *Run) Beside(name string) *Run { return r.with(r.Record.Facts.copied(), name) }

func (r *Run) with(f Facts, step string) *Run {
	rec := &Record{Plan: r.Record.Plan, Facts: f, step: step, events: r.Record.events}
	return newRun(rec, r.attendance, r.Store, r.Options)
}

// UnlessLate calls stop unless commit has begun: from there on the run is not given up.
func (r *Run) UnlessLate(stop func()) { r.attendance.unlessLate(stop) }

func (r *Run) overlays() *overlays { return &overlays{record: r.Record, images: r.Images} }

func (r *Run) converter() *converter {
	return &converter{record: r.Record, overlays: r.overlays(), rig: r.Rig, opts: r.Options, folder: r.Store.Folder(r.Record.Plan.ID)}
}

func (r *Run) verifier() *verifier {
	return &verifier{record: r.Record, vm: r.VM, images: r.Images, retry: r.Retry, rig: r.Rig, permit: r.Permit, opts: r.Options}
}
