package progress

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/journal/eventqueue"
	"github.com/decamp/decamp/internal/terminal"
	"github.com/decamp/decamp/test/pty"
)

// sampleRun returns the events of a run, with every kind of event that is displayed.
func sampleRun() []journal.Event {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	tick := func(d time.Duration) time.Time { at = at.Add(d); return at }
	moved := func(step string, after time.Duration, done, rate int64) journal.Event {
		b := &journal.Bytes{Total: 8 << 30, Skipped: 1 << 30, Done: done, Read: done / 2, Rate: rate}
		if rate > 0 {
			b.Left = time.Duration(b.Total-b.Skipped-done) * time.Second / (300 << 20)
			b.Busy = bottleneck.Busy{Source: 0.97, Target: 0.4}
		}
		return journal.Event{Time: tick(after), Kind: journal.Progressed, Step: step, Disk: 2000, Bytes: b}
	}
	return []journal.Event{
		{Time: tick(0), Kind: journal.RunStarted, Run: "web01-3f9a1c"},
		{Time: tick(0), Kind: journal.StepStarted, Step: "preflight"},
		{Time: tick(0), Kind: journal.PowerChanged, Step: "preflight", Message: "powering off"},
		{Time: tick(0), Kind: journal.StepDone, Step: "preflight"},
		{Time: tick(0), Kind: journal.StepStarted, Step: "copy"},
		{Time: tick(0), Kind: journal.DiskStarted, Step: "copy", Disk: 2000, Message: "from its beginning"},
		moved("copy", 0, 0, 0),
		moved("copy", time.Second, 1<<30, 500e6),
		moved("copy", 10*time.Second, 4<<30, 300e6),
		{Time: tick(0), Kind: journal.StepRetried, Step: "copy", Disk: 2000, Failure: journal.FailureOf(errors.New("connection reset"))},
		moved("copy", 10*time.Second, 7<<30, 300e6),
		{Time: tick(0), Kind: journal.DiskDone, Step: "copy", Disk: 2000, Message: "c0ffee"},
		{Time: tick(0), Kind: journal.StepDone, Step: "copy"},
		{Time: tick(0), Kind: journal.StepStarted, Step: "verify"},
		{Time: tick(0), Kind: journal.ChunkBad, Step: "verify", Disk: 2000, Message: "disk 2000 at 4096"},
		{Time: tick(0), Kind: journal.Warned, Step: "convert", Warning: &inventory.Warning{Code: "ide", Text: "IDE became SATA"}},
		{Time: tick(0), Kind: journal.RunDone},
	}
}

func TestProgressAsLines(t *testing.T) {
	var out bytes.Buffer
	l := &lines{w: &out, last: map[diskOf]time.Time{}}
	for _, e := range sampleRun() {
		l.HandleEvent(e)
	}
	l.Close()
	want, err := os.ReadFile("testdata/progress.txt")
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestEstimateTextStatesBootTime(t *testing.T) {
	o := journal.OutageEstimate{Dirty: 3e6, Delta: 212 << 20, Outage: 41 * time.Second}
	if got, want := estimateText(o), "212 MiB changed since the last round, 3.0 MB/s; outage with a cutover now: 41s (boot not included)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	o.Boot, o.Dirty = 20*time.Second, 0
	if got, want := estimateText(o), "outage with a cutover now: 41s (boot 20s)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestProgressAsJSON(t *testing.T) {
	var out bytes.Buffer
	p := New(printTo(&out), nil)
	for _, e := range sampleRun() {
		p.HandleEvent(e)
	}
	p.Close()
	kinds := map[journal.EventKind]int{}
	for line := range strings.Lines(out.String()) {
		var o struct{ Event *journal.Event }
		if err := json.Unmarshal([]byte(line), &o); err != nil || o.Event == nil {
			t.Fatalf("%s: %v", line, err)
		}
		kinds[o.Event.Kind]++
	}
	if kinds[journal.StepStarted] != 3 || kinds[journal.Progressed] != 3 || kinds[journal.RunDone] != 1 {
		t.Errorf("printed %v, want 3 steps, at most one progress event per second, and the end", kinds)
	}
}

// unreadOutput is an output that no one reads before the test does.
type unreadOutput struct {
	*io.PipeReader
	lines *bufio.Scanner
}

// printTo returns an output that prints JSON objects to w.
func printTo(w io.Writer) Output {
	return Output{Print: json.NewEncoder(w).Encode, Warn: func(string, ...any) {}}
}

// newUnreadOutput returns an output that is not read, and its writer.
func newUnreadOutput(t *testing.T) (unreadOutput, *io.PipeWriter) {
	in, out := io.Pipe()
	t.Cleanup(func() { in.Close() })
	return unreadOutput{in, bufio.NewScanner(in)}, out
}

// newScreen returns a screen without a terminal, and its text.
func newScreen(t *testing.T) (*terminal.Screen, func() string) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return terminal.NewScreen(f), func() string {
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
}

// callWithTimeout calls f, and fails the test if f does not return within a minute.
func callWithTimeout(t *testing.T, name string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s does not return", name)
	}
}

// A run does not wait for an output that is not read. When the output is read, only progress events may be
// missing.
func TestEventsDoNotWaitForTheirReader(t *testing.T) {
	u, out := newUnreadOutput(t)
	p := New(printTo(out), nil)
	const steps, each = 500, 20 // ten thousand progress events
	now := time.Unix(1_800_000_000, 0)
	callWithTimeout(t, "HandleEvent", func() {
		for i := range steps {
			p.HandleEvent(journal.Event{Time: now, Run: "r", Kind: journal.StepStarted, Step: fmt.Sprint(i)})
			for range each {
				now = now.Add(2 * time.Second)
				p.HandleEvent(journal.Event{Time: now, Run: "r", Kind: journal.Progressed, Step: fmt.Sprint(i), Bytes: &journal.Bytes{}})
			}
		}
	})
	go func() {
		p.Close()
		out.Close()
	}()
	next, progressed := 0, 0
	for u.lines.Scan() {
		var o struct{ Event *journal.Event }
		if err := json.Unmarshal(u.lines.Bytes(), &o); err != nil || o.Event == nil {
			t.Fatalf("%s: %v", u.lines.Text(), err)
		}
		switch o.Event.Kind {
		case journal.StepStarted:
			if o.Event.Step != fmt.Sprint(next) {
				t.Fatalf("step %s, want %d", o.Event.Step, next)
			}
			next++
		case journal.Progressed:
			progressed++
		}
	}
	if next != steps || progressed == 0 || progressed > eventqueue.MaxQueued {
		t.Errorf("%d of %d steps, %d progress events", next, steps, progressed)
	}
}

// Events that do not fit into the queue are counted, and the count is printed in their place.
func TestLostEventsAreCounted(t *testing.T) {
	u, out := newUnreadOutput(t)
	p := New(printTo(out), nil)
	const lost = 10
	callWithTimeout(t, "HandleEvent", func() {
		for range eventqueue.MaxQueued + lost {
			p.HandleEvent(journal.Event{Run: "r", Kind: journal.StepStarted})
		}
	})
	for n := range eventqueue.MaxQueued + 1 {
		var o struct {
			Event      *journal.Event
			LostEvents int
		}
		if !u.lines.Scan() || json.Unmarshal(u.lines.Bytes(), &o) != nil || (o.Event != nil) != (n < eventqueue.MaxQueued) || n == eventqueue.MaxQueued && o.LostEvents != lost {
			t.Fatalf("line %d: %s, %v", n, u.lines.Text(), u.lines.Err())
		}
	}
	callWithTimeout(t, "close", p.Close)
}

// Messages that follow an event are printed after it.
func TestMessagesFollowTheirEvents(t *testing.T) {
	screen, text := newScreen(t)
	p := New(Output{Screen: screen}, nil)
	p.(queuedDisplay).SetPatience(time.Hour)
	p.HandleEvent(journal.Event{Run: "r", Kind: journal.StepRetried, Step: "copy", Failure: &journal.Failure{Text: "first"}})
	fmt.Fprintln(screen, "second")
	p.Close()
	if got := text(); !strings.Contains(got, "first") || strings.Index(got, "first") > strings.Index(got, "second") {
		t.Errorf("printed %q", got)
	}
}

func TestProgressAsBars(t *testing.T) {
	p := pty.New(t)
	s := terminal.NewScreen(p.Open())
	if !s.IsTerminal() {
		t.Fatal("a pseudo-terminal is not detected as a terminal")
	}
	b := newBars(s, nil)
	for _, e := range sampleRun()[:9] {
		b.HandleEvent(e)
	}
	p.Sees("62 %")
	p.Sees("left")
	for _, w := range []string{"powering off", "[copy] -> detect -> convert -> verify -> commit", "bottleneck: source (97 % busy); next: target, at 2.4 times the rate", "copy 2000"} {
		if !strings.Contains(p.Seen(), w) {
			t.Errorf("no %q in:\n%s", w, p.Seen())
		}
	}
	for _, e := range sampleRun()[9:] {
		b.HandleEvent(e)
	}
	b.Close()
	s.Write([]byte("after\n"))
	p.Sees("after\r\n")
	for _, w := range []string{"connection reset", "root c0ffee"} {
		if !strings.Contains(p.Seen(), w) {
			t.Errorf("no %q in:\n%s", w, p.Seen())
		}
	}
}

func TestPipelineShowsTheStep(t *testing.T) {
	for step, want := range map[string]string{
		"verify":    "copy -> detect -> convert -> [verify] -> commit",
		"preflight": "[preflight] -> copy -> detect -> convert -> verify -> commit",
	} {
		if got := pipelineText(step); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestScreenRedirectIsReversible(t *testing.T) {
	screen, text := newScreen(t)
	var above bytes.Buffer
	screen.Redirect(&above)
	fmt.Fprintln(screen, "one")
	screen.Redirect(nil)
	fmt.Fprintln(screen, "two")
	if text() != "two\n" || above.String() != "one\n" {
		t.Errorf("screen %q, above %q", text(), above.String())
	}
}
