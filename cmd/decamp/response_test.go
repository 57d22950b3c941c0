package main

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

// newCommandedRun returns a response for a command that no process has read, and its clock.
func newCommandedRun(t *testing.T, r *rig) (*response, *time.Time) {
	t.Helper()
	store := journal.NewStore(r.assembler.State)
	p := journal.Plan{Version: 1, ID: "web01-abcdef", VM: journal.VM{Ref: inventory.MoRef("vm-1")}}
	if _, err := store.Create(p); err != nil {
		t.Fatal(err)
	}
	if err := store.SendCommand(p.ID, journal.Pause); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.assembler.State+"/lock", []byte("4711\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	w := newResponse(r.program.out, r.assembler.State, store, p.ID)
	w.sentAt, w.now = now, func() time.Time { return now }
	return w, &now
}

// A process that does not read a command is reported once, with its pid and a remedy, and given up later.
func TestProcessThatDoesNotReadIsReported(t *testing.T) {
	r := newRig(t)
	w, now := newCommandedRun(t, r)
	*now = now.Add(readLimit - 1)
	if err := w.check(); err != nil || r.stderr() != "" {
		t.Errorf("before the limit: %v, %q", err, r.stderr())
	}
	for range 3 {
		*now = now.Add(time.Second)
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	}
	mustContain(t, r.stderr(), "the decamp process 4711, which executes run web01-abcdef, has not read the command for 10s", "kill -CONT 4711")
	if n := strings.Count(r.stderr(), "Warning: "); n != 1 {
		t.Errorf("%d warnings: %s", n, r.stderr())
	}
	*now = now.Add(silenceLimit)
	if err := w.check(); !fault.Is(err, fault.Unreachable) || !strings.Contains(fault.HintOf(err), "kill -CONT 4711") {
		t.Errorf("after the second limit: %v", err)
	}
}

// A process that has read the commands has all the time: only a later command that it does not read counts.
func TestProcessThatReadsIsNotReported(t *testing.T) {
	r := newRig(t)
	w, now := newCommandedRun(t, r)
	if err := w.store.CommandsRead(w.store.CommandMark()); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(time.Hour)
	if read, err := w.wait(t.Context()); err != nil || !read {
		t.Errorf("%v, %v", read, err)
	}
	if err := w.check(); err != nil || r.stderr() != "" {
		t.Errorf("%v, %q", err, r.stderr())
	}
	if err := w.store.SendCommand(w.id, journal.CutOver); err != nil {
		t.Fatal(err)
	}
	if err := w.check(); err != nil || r.stderr() != "" {
		t.Errorf("a new command: %v, %q", err, r.stderr())
	}
	*now = now.Add(readLimit)
	if read, err := w.wait(t.Context()); err != nil || read || r.stderr() == "" {
		t.Errorf("a new command, later: %v, %v, %q", read, err, r.stderr())
	}
}

// Without a pid in the lock file, the message names none.
func TestUnknownProcess(t *testing.T) {
	r := newRig(t)
	w, _ := newCommandedRun(t, r)
	if err := os.WriteFile(r.assembler.State+"/lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(w.process(), w.remedy()); strings.Contains(got, "process 0") || !strings.Contains(got, "ps -C decamp") {
		t.Error(got)
	}
}
