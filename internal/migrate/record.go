package migrate

import (
	"fmt"
	"slices"
	"sync"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/targets"
)

// A Record is the stored data of a run: its plan, its events, and the results of its steps. One step at
// a time uses it. That step may add warnings, report events and meter disks in parallel. It adds other
// Facts alone, or each disk to a separate element.
type Record struct {
	Plan  journal.Plan // plan of the run, as recorded
	Facts Facts        // results of the steps so far

	step   string  // name of the step in events; "" outside of steps
	events *events // journal of the run

	warning sync.Mutex // held while Facts.Warnings grows
}

// Report journals an event of the step, and passes it to the subscriber.
func (r *Record) Report(e journal.Event) {
	e.Step = r.step
	r.events.reportEvent(r.Plan.ID, e)
}

// Warn adds a warning once: a step that runs again finds the same problems.
func (r *Record) Warn(w inventory.Warning) {
	r.warning.Lock()
	had := slices.Contains(r.Facts.Warnings, w)
	if !had {
		r.Facts.Warnings = append(r.Facts.Warnings, w)
	}
	r.warning.Unlock()
	if had {
		return
	}
	r.Report(journal.Event{Kind: journal.Warned, Warning: &w})
}

// ReportWarning reports a warning that applies now, without recording it: it may not apply when the VM is
// published.
func (r *Record) ReportWarning(code, remedy, format string, args ...any) {
	r.Report(journal.Event{Kind: journal.Warned, Warning: &inventory.Warning{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy}})
}

// AddStage adds the time of a stage. Stages of the same name in several rounds of a warm run are added
// up.
func (r *Record) AddStage(s journal.StageTime) {
	if r.Facts.Warm != nil {
		for i := range r.Facts.Stages {
			if had := &r.Facts.Stages[i]; had.Name == s.Name {
				had.Bytes += s.Bytes
				had.Read += s.Read
				had.Elapsed += s.Elapsed
				had.Working += s.Working
				had.Source += s.Source
				had.Target += s.Target
				return
			}
		}
	}
	r.Facts.Stages = append(r.Facts.Stages, s)
}

// Info returns the identity that a manifest is bound to. The identity of a warm run is different: its
// copy belongs to a VM that continued to run, so a cold run must not use it.
func (r *Record) Info(img targets.Image) manifest.Info {
	i := manifest.Info{
		Disk: fmt.Sprint(img.Key), Size: img.Size,
		Source: fmt.Sprintf("%s %s %s %d", r.Plan.ID, r.Plan.VM.Ref, r.Plan.VM.InstanceUUID, img.Key),
	}
	if r.Plan.Warm {
		i.Source += " warm"
	}
	return i
}
