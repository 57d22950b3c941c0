// Package progress shows the events of runs and the state of plans: bars on a terminal, lines otherwise,
// or JSON objects.
package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/journal/eventqueue"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/terminal"
	"github.com/decamp/decamp/internal/units"
)

// Output is where events are shown.
type Output struct {
	Screen *terminal.Screen                 // standard error
	Print  func(any) error                  // prints an event as a JSON object; nil: events are text on the screen
	Warn   func(format string, args ...any) // prints a warning
}

// Display shows the events of runs. HandleEvent is not called concurrently. Close is called once, after the
// last event.
type Display interface {
	HandleEvent(journal.Event)
	Close()
}

// queuedDisplay is a display behind a queue, so that a run continues if its output blocks.
type queuedDisplay struct{ *eventqueue.Queue }

func (q queuedDisplay) HandleEvent(e journal.Event) { q.Add(e) }

func (q queuedDisplay) Close() { q.Queue.Close() }

// New returns bars on a terminal, lines otherwise, and JSON objects with Print. Its HandleEvent does not
// wait for an output that is not read.
func New(out Output, names Names) Display {
	d := newDisplay(out, names)
	return queuedDisplay{eventqueue.New(d.HandleEvent, d.Close, out.reportLost)}
}

// reportLost prints that n events were not printed.
func (o Output) reportLost(n int) {
	if o.Print != nil {
		_ = o.Print(map[string]int{"lostEvents": n}) // the first error of the standard output ends the command with an error
	}
	o.Warn("%s not printed, because the output was not read for long; the run's journal.jsonl in the state directory has them", units.Count(n, "event"))
}

// newDisplay returns the display of New, which blocks with its output.
func newDisplay(out Output, names Names) Display {
	switch {
	case out.Print != nil:
		return &objects{print: out.Print, last: map[diskOf]time.Time{}}
	case out.Screen.IsTerminal():
		return newBars(out.Screen, names)
	}
	return &lines{w: out.Screen, names: names, last: map[diskOf]time.Time{}}
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
	print func(any) error
	last  map[diskOf]time.Time
}

func (o *objects) HandleEvent(e journal.Event) {
	if e.Kind == journal.Progressed && !isDue(o.last, e, time.Second) {
		return
	}
	_ = o.print(struct { // without a reader there is nothing to do
		Event journal.Event `json:"event"`
	}{e})
}

func (o *objects) Close() {}

// lines prints events as text, progress every ten seconds for each disk.
type lines struct {
	w     io.Writer
	names Names
	last  map[diskOf]time.Time
}

func (l *lines) HandleEvent(e journal.Event) {
	if e.Kind == journal.Progressed && e.Bytes != nil {
		if isDue(l.last, e, 10*time.Second) {
			fmt.Fprintf(l.w, "%s  %s: %s\n", l.names.prefix(e), stepLabel(e, " disk"), Text(*e.Bytes)+limitedBy(*e.Bytes))
		}
		return
	}
	if line := eventText(e); line != "" {
		fmt.Fprintln(l.w, l.names.prefix(e)+line)
	}
}

func (l *lines) Close() {}

// A Meter converts the progress of one step on one disk to events, with the mean rate since its start.
type Meter struct {
	shown Display
	step  string
	Disk  int32 // device key; 0: there is one disk
	now   func() time.Time
	began time.Time
}

// NewMeter returns a meter that starts now and shows its events on shown.
func NewMeter(shown Display, step string) *Meter {
	return &Meter{shown: shown, step: step, now: time.Now, began: time.Now()}
}

// minRateTime is the minimum time over which a rate is computed.
const minRateTime = time.Second

// ShowCopy shows the progress of a copy.
func (m *Meter) ShowCopy(p blockcopy.Progress) {
	m.showBytes(journal.Bytes{Total: p.Size, Done: p.Done, Skipped: p.Skipped, Read: p.Read, Zero: max(p.Done-p.Written, 0)})
}

// ShowVerify shows the progress of a verification.
func (m *Meter) ShowVerify(p manifest.Progress) {
	m.showBytes(journal.Bytes{Total: p.Size, Done: p.Done, Read: p.Read})
}

// showBytes shows b with its rate and the remaining time.
func (m *Meter) showBytes(b journal.Bytes) {
	now := m.now()
	d := now.Sub(m.began)
	b.Rate = int64(float64(b.Read) / max(d, minRateTime).Seconds())
	if b.Done > 0 {
		b.Left = time.Duration(float64(b.Total-b.Done-b.Skipped) / float64(b.Done) * float64(d))
	}
	m.shown.HandleEvent(journal.Event{Time: now, Kind: journal.Progressed, Step: m.step, Disk: m.Disk, Bytes: &b})
}
