package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/plan"
)

// progress shows events while they happen. event is called one call at a time, and must
// not block; close is called once, after the last event.
type progress interface {
	event(plan.Event)
	close()
}

// runNames tell several runs apart for people. Empty where there is but one.
type runNames map[plan.ID]string

// prefix is what is said before anything about the run of e.
func (n runNames) prefix(e plan.Event) string {
	if name, ok := n[e.Run]; ok {
		return name + ": "
	}
	return ""
}

// newProgress returns bars on a terminal, lines elsewhere, and objects with --json.
func (a *app) newProgress(names runNames) progress {
	switch {
	case a.json:
		return &objects{a: a, last: map[diskOf]time.Time{}}
	case a.err.isTerminal():
		return newBars(a.err, names)
	}
	return &lines{w: a.err, names: names, last: map[diskOf]time.Time{}}
}

// diskOf tells the disks of one step of a run from those of another.
type diskOf struct {
	run  plan.ID
	step string
	disk int32
}

// due reports whether so much time has passed since the disk's last event that was shown,
// or since its first.
func due(last map[diskOf]time.Time, e plan.Event, every time.Duration) bool {
	k := diskOf{e.Run, e.Step, e.Disk}
	before, seen := last[k]
	if seen && e.Time.Sub(before) < every {
		return false
	}
	last[k] = e.Time
	return seen
}

// objects prints events as JSON, progress once a second for each disk.
type objects struct {
	a    *app
	last map[diskOf]time.Time
}

func (o *objects) event(e plan.Event) {
	if e.Kind == plan.Progressed && !due(o.last, e, time.Second) {
		return
	}
	_ = o.a.print(struct { // nobody to tell that nobody reads
		Event plan.Event `json:"event"`
	}{e})
}

func (o *objects) close() {}

// lines prints events as text, progress every ten seconds for each disk.
type lines struct {
	w     io.Writer
	names runNames
	last  map[diskOf]time.Time
}

func (l *lines) event(e plan.Event) {
	if e.Kind == plan.Progressed && e.Bytes != nil {
		if due(l.last, e, 10*time.Second) {
			fmt.Fprintf(l.w, "%s  %s: %s\n", l.names.prefix(e), label(e, " disk"), state(*e.Bytes)+limitedBy(*e.Bytes))
		}
		return
	}
	if line := say(e); line != "" {
		fmt.Fprintln(l.w, l.names.prefix(e)+line)
	}
}

func (l *lines) close() {}

// label names a step on a disk. Where there is but one disk, it has no number.
func label(e plan.Event, disk string) string {
	if e.Disk == 0 {
		return e.Step
	}
	return fmt.Sprintf("%s%s %d", e.Step, disk, e.Disk)
}

// state reports how far a disk is: "61 %, 4.9 GiB of 8 GiB, 3.1 GiB moved, 230 MB/s, 14s left". What is
// not moved are zeros, and what was copied before.
func state(b plan.Bytes) string {
	done := b.Done + b.Skipped
	s := fmt.Sprintf("%s, %s of %s", percent(done, b.Total), size(done), size(b.Total))
	if b.Read > 0 && b.Read < done {
		s += fmt.Sprintf(", %s moved", size(b.Read))
	}
	if b.Rate > 0 {
		s += ", " + rate(b.Rate, time.Second)
	}
	if b.Left > 0 {
		s += fmt.Sprintf(", %s left", duration(b.Left))
	}
	return s
}

// limitedBy is "; limited by the source …", if that is known.
func limitedBy(b plan.Bytes) string {
	if limit := b.Busy.Limit(); limit.What != "" {
		return "; " + limit.String()
	}
	return ""
}

// outlookWords is "212 MiB changed since, 3 MB/s; cut over now: out for 41s, its boot not counted".
func outlookWords(o plan.Outlook) string {
	text := ""
	if o.Dirty > 0 {
		text = fmt.Sprintf("%s changed since, %s; ", size(o.Delta), rate(o.Dirty, time.Second))
	}
	text += "cut over now: out for " + duration(o.Outage)
	if o.Delivery > 0 {
		text += ", " + duration(o.Delivery) + " of it for the delivery"
	}
	if o.Boot == 0 {
		return text + ", its boot not counted"
	}
	return text + ", its boot of " + duration(o.Boot) + " included"
}

// say puts an event into words; "" if people need not know. How the run ended is said by
// the command itself.
func say(e plan.Event) string {
	switch e.Kind {
	case plan.StepBegan:
		return e.Step
	case plan.StepRetried:
		if e.Failure == nil {
			return ""
		}
		return fmt.Sprintf("  %s is tried again: %s", e.Step, plain(e.Failure.Text))
	case plan.DiskBegan, plan.DiskDone, plan.DiskAnew:
		return fmt.Sprintf("  disk %d: %s", e.Disk, diskWords(e))
	case plan.ChunkBad:
		return fmt.Sprintf("  disk %d: BAD CHUNK: %s", e.Disk, plain(e.Message))
	case plan.RunBegan, plan.Noted, plan.PowerChanged, plan.RoundDone, plan.RehearsalDone:
		return plain(e.Message)
	case plan.Waits:
		if e.Message == "" {
			return ""
		}
		return "  waits: " + plain(e.Message)
	case plan.Warned:
		if e.Warning == nil {
			return ""
		}
		return fmt.Sprintf("  warning %s: %s", e.Warning.Code, plain(e.Warning.Text))
	}
	return ""
}

func diskWords(e plan.Event) string {
	if e.Kind == plan.DiskDone {
		return "done, root " + e.Message
	}
	return plain(e.Message)
}

// runNamesOf tell the runs apart, if there are several.
func runNamesOf(w *assemble.Parts) runNames {
	if len(w.To) == 1 {
		return nil
	}
	names := runNames{}
	for _, d := range w.To {
		names[d.Plan.ID] = strings.TrimRight(d.Name, "/")
	}
	return names
}

// meter turns the progress of one step on one disk into events, with the rate since its
// beginning.
type meter struct {
	shown progress
	step  string
	disk  int32 // device key; 0: there is one disk
	now   func() time.Time
	began time.Time
}

func newMeter(shown progress, step string) *meter {
	return &meter{shown: shown, step: step, now: time.Now, began: time.Now()}
}

func (c *conversion) meter(step string) *meter { return newMeter(c.shown, step) }

// shortestRate is the time that a rate is over at least.
const shortestRate = time.Second

func (m *meter) copying(p blockcopy.Progress) {
	m.show(plan.Bytes{Total: p.Size, Done: p.Done, Skipped: p.Skipped, Read: p.Read, Zero: max(p.Done-p.Written, 0)})
}

func (m *meter) verifying(p manifest.Progress) {
	m.show(plan.Bytes{Total: p.Size, Done: p.Done, Read: p.Read})
}

func (m *meter) show(b plan.Bytes) {
	now := m.now()
	d := now.Sub(m.began)
	b.Rate = int64(float64(b.Read) / max(d, shortestRate).Seconds())
	if b.Done > 0 {
		b.Left = time.Duration(float64(b.Total-b.Done-b.Skipped) / float64(b.Done) * float64(d))
	}
	m.shown.event(plan.Event{Time: now, Kind: plan.Progressed, Step: m.step, Disk: m.disk, Bytes: &b})
}
