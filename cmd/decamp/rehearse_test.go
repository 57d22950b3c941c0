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

// replying is a fleet whose worker does at once what is asked of it.
type replying struct {
	server.Control
	reply func(ask fleetdb.Rehearsal) error // right after it is asked
}

func (c replying) Rehearse(ctx context.Context, k fleetdb.Key, ask fleetdb.Rehearsal) error {
	if err := c.Control.Rehearse(ctx, k, ask); err != nil {
		return err
	}
	return c.reply(ask)
}

// drivenWave is a fleet with a warm VM that worker w1 drives.
func drivenWave(t *testing.T) (server.Control, *fleetdb.Database, fleetdb.Claim) {
	t.Helper()
	vm := servertest.VM("vm-1", "web1")
	vm.Warm = true
	c := waveOf(t, vm)
	r := c.(server.Audited).Database
	sched, err := r.Leases.Acquire(t.Context(), "scheduler", "s", time.Hour)
	_, jerr := r.Workers.Join(t.Context(), fleetdb.Worker{Name: "w1", VMs: 1}, time.Hour)
	granted, gerr := r.Scheduling.Grant(t.Context(), sched, []fleetdb.Granted{{Key: fleetdb.Key{Plan: "wave", VM: "vm-1"}, Worker: "w1"}})
	if err := errors.Join(err, jerr, gerr); err != nil || len(granted) != 1 {
		t.Fatal(err, granted)
	}
	return c, r, fleetdb.Claim{Key: granted[0].Key, Worker: "w1", Epoch: granted[0].Epoch}
}

// quiet is a screen that nobody sees.
func quiet(t *testing.T) *terminal.Screen {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return terminal.NewScreen(f)
}

// rehearsalOn returns the command that rehearses with the streams of a program.
func rehearsalOn(p *program) *rehearseCommand {
	return &rehearseCommand{out: p.out, assembler: p.assembler}
}

// What the worker says is shown, and is the exit code's; nothing stands afterwards.
func TestAWorkersVerdictIsShown(t *testing.T) {
	for name, test := range map[string]struct {
		answer fleetdb.Rehearsed
		kind   fault.Kind
		shown  []string
	}{
		"booted": {fleetdb.Rehearsed{Report: json.RawMessage(`{"verdict":"booted","reason":"login:","accel":"tcg","serial":"/var/s.log"}`), Tail: "login:"}, 0,
			[]string{"It booted", "serial port: /var/s.log", "on worker w1"}},
		"no boot": {fleetdb.Rehearsed{Report: json.RawMessage(`{"verdict":"initramfs","reason":"(initramfs)","remedy":"add it","accel":"tcg"}`), Tail: "one\r\n\x1b[2Jtwo\n"}, fault.Unsupported,
			[]string{"Last output of the serial port:\n  one\n", "two"}},
		"failed": {fleetdb.Rehearsed{Failure: &fleetdb.Failure{Kind: "canceled", Text: "the cutover ended the rehearsal", Hint: "nothing"}}, fault.Canceled, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, r, claim := drivenWave(t)
			var out bytes.Buffer
			a := newProgram(nil, &out, quiet(t), os.Getenv, terminal.Open)
			vm, err := r.VMs.Get(t.Context(), claim.Key)
			if err != nil {
				t.Fatal(err)
			}
			err = rehearsalOn(a).rehearseVM(t.Context(), replying{c, func(ask fleetdb.Rehearsal) error {
				test.answer.Rehearsal = ask
				return r.Rehearsals.Answer(t.Context(), claim, test.answer)
			}}, vm, fleetdb.Rehearsal{ID: "1"})
			if (err != nil) != (name != "booted") || err != nil && (fault.KindOf(err) != test.kind || fault.HintOf(err) == "") {
				t.Errorf("ends with %v", err)
			}
			for _, words := range test.shown {
				if !strings.Contains(out.String(), words) {
					t.Errorf("not shown: %q in %q", words, out.String())
				}
			}
			if strings.Contains(out.String(), "\x1b") {
				t.Errorf("the terminal is told what the guest said: %q", out.String())
			}
		})
	}
}

// User does not wait for the answer does not want it; and who waits hears that there will be none.
func TestARehearsalThatNobodyWaitsForIsTakenBack(t *testing.T) {
	c, r, claim := drivenWave(t)
	vm, err := r.VMs.Get(t.Context(), claim.Key)
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	_, err = server.AwaitRehearsal(ctx, replying{c, func(fleetdb.Rehearsal) error {
		interrupt()
		return nil
	}}, slog.New(slog.DiscardHandler), vm, fleetdb.Rehearsal{ID: "1"}, func() {})
	if now, verr := r.VMs.Get(t.Context(), claim.Key); !errors.Is(err, context.Canceled) || verr != nil || now.Rehearse != nil {
		t.Errorf("interrupted: %v; it stands: %+v, %v", err, now.Rehearse, verr)
	}
	_, err = server.AwaitRehearsal(t.Context(), replying{c, func(ask fleetdb.Rehearsal) error {
		return r.Claims.Finish(t.Context(), claim, fleetdb.End{State: fleetdb.Queued})
	}}, slog.New(slog.DiscardHandler), vm, fleetdb.Rehearsal{ID: "2"}, func() {})
	if !fault.Is(err, fault.Canceled) || !strings.Contains(fault.HintOf(err), "decamp status wave") {
		t.Errorf("its worker gave it back: %v", err)
	}
}
