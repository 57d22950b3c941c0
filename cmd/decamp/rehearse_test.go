package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
	"github.com/decamp/decamp/internal/terminal"
)

// replyingControl is a fleet that calls reply after each request of a rehearsal.
type replyingControl struct {
	server.Control
	reply func(fleetdb.Rehearsal) error
}

func (c replyingControl) Rehearse(ctx context.Context, k fleetdb.Key, rehearsal fleetdb.Rehearsal) error {
	if err := c.Control.Rehearse(ctx, k, rehearsal); err != nil {
		return err
	}
	return c.reply(rehearsal)
}

// newRunningWave returns a fleet with a warm VM that runs on worker w1.
func newRunningWave(t *testing.T) (server.Control, *fleetdb.Database, fleetdb.Claim) {
	t.Helper()
	vm := servertest.VM("vm-1", "web1")
	vm.Warm = true
	c := newWave(t, vm)
	r := c.(server.Audited).Database
	sched, err := r.Leases.Acquire(t.Context(), "scheduler", "s", time.Hour)
	_, jerr := r.Workers.Join(t.Context(), fleetdb.Worker{Name: "w1", VMs: 1}, time.Hour)
	granted, gerr := r.Scheduling.Grant(t.Context(), sched, []fleetdb.Granted{{Key: fleetdb.Key{Plan: "wave", VM: "vm-1"}, Worker: "w1"}})
	if err := errors.Join(err, jerr, gerr); err != nil || len(granted) != 1 {
		t.Fatal(err, granted)
	}
	return c, r, fleetdb.Claim{Key: granted[0].Key, Worker: "w1", Epoch: granted[0].Epoch}
}

// newTestScreen returns a screen that is a file.
func newTestScreen(t *testing.T) *terminal.Screen {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return terminal.NewScreen(f)
}

// newRehearseCommand returns a rehearse command with the streams of p.
func newRehearseCommand(p *program) *rehearseCommand {
	return &rehearseCommand{out: p.out, assembler: p.assembler}
}

// decamp rehearse prints the report of the worker. The verdict determines the exit code.
func TestWorkerVerdictIsShown(t *testing.T) {
	for name, test := range map[string]struct {
		result fleetdb.Rehearsed
		kind   fault.Kind
		output []string
	}{
		"booted": {fleetdb.Rehearsed{Report: json.RawMessage(`{"verdict":"booted","reason":"login:","accel":"tcg","serial":"/var/s.log"}`), Tail: "login:"}, 0,
			[]string{"It booted", "serial port: /var/s.log", "on worker w1"}},
		"no boot": {fleetdb.Rehearsed{Report: json.RawMessage(`{"verdict":"initramfs","reason":"(initramfs)","remedy":"add it","accel":"tcg"}`), Tail: "one\r\n\x1b[2Jtwo\n"}, fault.Unsupported,
			[]string{"Last output of the serial port:\n  one\n", "two"}},
		"failed": {fleetdb.Rehearsed{Failure: &fleetdb.Failure{Kind: "canceled", Text: "the cutover ended the rehearsal", Hint: "nothing"}}, fault.Canceled, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, r, claim := newRunningWave(t)
			var out bytes.Buffer
			a := newProgram(nil, &out, newTestScreen(t), os.Getenv, terminal.Open)
			vm, err := r.VMs.Get(t.Context(), claim.Key)
			if err != nil {
				t.Fatal(err)
			}
			err = newRehearseCommand(a).rehearseVM(t.Context(), replyingControl{c, func(rehearsal fleetdb.Rehearsal) error {
				test.result.Rehearsal = rehearsal
				return r.Rehearsals.Answer(t.Context(), claim, test.result)
			}}, vm, fleetdb.Rehearsal{ID: "1"})
			if (err != nil) != (name != "booted") || err != nil && (fault.KindOf(err) != test.kind || fault.HintOf(err) == "") {
				t.Errorf("got error %v", err)
			}
			for _, words := range test.output {
				if !strings.Contains(out.String(), words) {
					t.Errorf("%q is missing in %q", words, out.String())
				}
			}
			if strings.Contains(out.String(), "\x1b") {
				t.Errorf("the output contains an escape character of the guest: %q", out.String())
			}
		})
	}
}

// The rehearsal is removed if the client stops waiting for it. A client that waits gets an error if the VM leaves its
// worker.
func TestAbandonedRehearsalIsRemoved(t *testing.T) {
	c, r, claim := newRunningWave(t)
	vm, err := r.VMs.Get(t.Context(), claim.Key)
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	_, err = server.AwaitRehearsal(ctx, replyingControl{c, func(fleetdb.Rehearsal) error {
		interrupt()
		return nil
	}}, slog.New(slog.DiscardHandler), vm, fleetdb.Rehearsal{ID: "1"}, func() {})
	if now, verr := r.VMs.Get(t.Context(), claim.Key); !errors.Is(err, context.Canceled) || verr != nil || now.Rehearse != nil {
		t.Errorf("interrupted: error %v, rehearsal %+v, %v; want no rehearsal", err, now.Rehearse, verr)
	}
	_, err = server.AwaitRehearsal(t.Context(), replyingControl{c, func(fleetdb.Rehearsal) error {
		return r.Claims.Finish(t.Context(), claim, fleetdb.End{State: fleetdb.Queued})
	}}, slog.New(slog.DiscardHandler), vm, fleetdb.Rehearsal{ID: "2"}, func() {})
	if !fault.Is(err, fault.Canceled) || !strings.Contains(fault.HintOf(err), "decamp status wave") {
		t.Errorf("a VM that left its worker: %v", err)
	}
}
