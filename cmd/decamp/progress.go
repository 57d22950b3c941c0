package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/journal/eventqueue"
	"github.com/decamp/decamp/internal/manifest"
)

// progress shows the events of runs. handleEvent is not called concurrently. close is called once, after the
// last event.
type progress interface {
	handleEvent(journal.Event)
	close()
}

// queuedProgress is a display behind a queue, so that a run continues if its output blocks.
type queuedProgress struct{ *eventqueue.Queue }

func (q queuedProgress) handleEvent(e journal.Event) { q.Add(e) }

func (q queuedProgress) close() { q.Close() }

// newProgress returns bars on a terminal, lines otherwise, and JSON objects with --json. Its handleEvent does
// not wait for an output that is not read.
func newProgress(out *output, names runNames) progress {
	d := newDisplay(out, names)
	return queuedProgress{eventqueue.New(d.handleEvent, d.close, func(n int) { reportLost(out, n) })}
}

// reportLost prints that n events were not printed.
func reportLost(out *output, n int) {
	if out.json {
		_ = out.printJSON(map[string]int{"lostEvents": n}) // the first error of the standard output ends the command with an error
	}
	out.warn("%s not printed, because the output was not read for long; the run's journal.jsonl in the state directory has them", countOf(n, "event"))
}

// newDisplay returns the display of newProgress, which blocks with its output.
func newDisplay(out *output, names runNames) progress {
	switch {
	case out.json:
		return &objects{out: out, last: map[diskOf]time.Time{}}
	case out.screen.isTerminal():
		return newBars(out.screen, names)
	}
	return &lines{w: out.screen, names: names, last: map[diskOf]time.Time{}}
}

// isDue reports whether every has passed since the last event of the disk that was shown, or since its
// first event.
func isDue(last map[diskOf]time.Time, e journal.Event, every time.Duration) bool {
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
	out  *output
	last map[diskOf]time.Time
}

func (o *objects) handleEvent(e journal.Event) {
	if e.Kind == journal.Progressed && !isDue(o.last, e, time.Second) {
		return
	}
	_ = o.out.printJSON(struct { // without a reader there is nothing to do
		Event journal.Event `json:"event"`
	}{e})
}

func (o *objects) close() {}

// lines prints events as text, progress every ten seconds for each disk.
type lines struct {
	w     io.Writer
	names runNames
	last  map[diskOf]time.Time
}

func (l *lines) handleEvent(e journal.Event) {
	if e.Kind == journal.Progressed && e.Bytes != nil {
		if isDue(l.last, e, 10*time.Second) {
			fmt.Fprintf(l.w, "%s  %s: %s\n", l.names.prefix(e), stepLabel(e, " disk"), progressText(*e.Bytes)+limitedBy(*e.Bytes))
		}
		return
	}
	if line := eventText(e); line != "" {
		fmt.Fprintln(l.w, l.names.prefix(e)+line)
	}
}

func (l *lines) close() {}

// runNamesOf returns the name of each run by its destination; nil if there is only one.
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

// A meter converts the progress of one step on one disk to events, with the mean rate since its start.
type meter struct {
	shown progress
	step  string
	disk  int32 // device key; 0: there is one disk
	now   func() time.Time
	began time.Time
}

// newMeter returns a meter that starts now and shows its events on shown.
func newMeter(shown progress, step string) *meter {
	return &meter{shown: shown, step: step, now: time.Now, began: time.Now()}
}

// minRateTime is the minimum time over which a rate is computed.
const minRateTime = time.Second

// showCopy shows the progress of a copy.
func (m *meter) showCopy(p blockcopy.Progress) {
	m.showBytes(journal.Bytes{Total: p.Size, Done: p.Done, Skipped: p.Skipped, Read: p.Read, Zero: max(p.Done-p.Written, 0)})
}

// showVerify shows the progress of a verification.
func (m *meter) showVerify(p manifest.Progress) {
	m.showBytes(journal.Bytes{Total: p.Size, Done: p.Done, Read: p.Read})
}

// showBytes shows b with its rate and the remaining time.
func (m *meter) showBytes(b journal.Bytes) {
	now := m.now()
	d := now.Sub(m.began)
	b.Rate = int64(float64(b.Read) / max(d, minRateTime).Seconds())
	if b.Done > 0 {
		b.Left = time.Duration(float64(b.Total-b.Done-b.Skipped) / float64(b.Done) * float64(d))
	}
	m.shown.handleEvent(journal.Event{Time: now, Kind: journal.Progressed, Step: m.step, Disk: m.disk, Bytes: &b})
}
