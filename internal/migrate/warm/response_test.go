package warm

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
)

// commandedRun is a response for a command that no process has read.
type commandedRun struct {
	*Response
	now      time.Time // its clock
	warnings []string  // printed warnings
}

func newCommandedRun(t *testing.T) *commandedRun {
	t.Helper()
	state := t.TempDir()
	store := journal.NewStore(state)
	p := journal.Plan{Version: 1, ID: "web01-abcdef", VM: journal.VM{Ref: inventory.MoRef("vm-1")}}
	if _, err := store.Create(p); err != nil {
		t.Fatal(err)
	}
	if err := store.SendCommand(p.ID, journal.Pause); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state+"/lock", []byte("4711\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &commandedRun{now: time.Unix(1_800_000_000, 0)}
	w.Response = NewResponse(func(format string, args ...any) { w.warnings = append(w.warnings, fmt.Sprintf(format, args...)) }, state, store, p.ID)
	w.sentAt, w.Response.now = w.now, func() time.Time { return w.now }
	return w
}

// A process that does not read a command is reported once, with its pid and a remedy, and given up later.
func TestUnresponsiveProcessIsReported(t *testing.T) {
	w := newCommandedRun(t)
	w.now = w.now.Add(readLimit - 1)
	if err := w.Check(); err != nil || len(w.warnings) > 0 {
		t.Errorf("before the limit: %v, %q", err, w.warnings)
	}
	for range 3 {
		w.now = w.now.Add(time.Second)
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.warnings) != 1 {
		t.Fatalf("warnings: %q", w.warnings)
	}
	for _, want := range []string{"the decamp process 4711, which executes run web01-abcdef, has not read the command for 10s", "kill -CONT 4711"} {
		if !strings.Contains(w.warnings[0], want) {
			t.Errorf("no %q in %q", want, w.warnings[0])
		}
	}
	w.now = w.now.Add(silenceLimit)
	if err := w.Check(); !fault.Is(err, fault.Unreachable) || !strings.Contains(fault.HintOf(err), "kill -CONT 4711") {
		t.Errorf("after the second limit: %v", err)
	}
}

// A process that has read the commands is not reported until a later command stays unread.
func TestResponsiveProcessIsNotReported(t *testing.T) {
	w := newCommandedRun(t)
	if err := w.store.CommandsRead(w.store.CommandMark()); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Hour)
	if read, err := w.Wait(t.Context()); err != nil || !read {
		t.Errorf("%v, %v", read, err)
	}
	if err := w.Check(); err != nil || len(w.warnings) > 0 {
		t.Errorf("%v, %q", err, w.warnings)
	}
	if err := w.store.SendCommand(w.id, journal.CutOver); err != nil {
		t.Fatal(err)
	}
	if err := w.Check(); err != nil || len(w.warnings) > 0 {
		t.Errorf("a new command: %v, %q", err, w.warnings)
	}
	w.now = w.now.Add(readLimit)
	if read, err := w.Wait(t.Context()); err != nil || read || len(w.warnings) == 0 {
		t.Errorf("a new command, later: %v, %v, %q", read, err, w.warnings)
	}
}

// Without a pid in the lock file, the message contains no pid.
func TestUnknownProcess(t *testing.T) {
	w := newCommandedRun(t)
	if err := os.WriteFile(w.state+"/lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(w.process(), w.remedy()); strings.Contains(got, "process 0") || !strings.Contains(got, "ps -C decamp") {
		t.Error(got)
	}
}
