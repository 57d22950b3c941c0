package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/server"
)

// replying is a fleet whose worker does at once what is asked of it.
type replying struct {
	server.Control
	reply func(ask roster.Rehearsal) error // right after it is asked
}

func (c replying) Rehearse(ctx context.Context, k roster.Key, ask roster.Rehearsal) error {
	if err := c.Control.Rehearse(ctx, k, ask); err != nil {
		return err
	}
	return c.reply(ask)
}

// drivenWave is a fleet with a warm VM that worker w1 drives.
func drivenWave(t *testing.T) (server.Control, *roster.Roster, roster.Claim) {
	t.Helper()
	vm := named("vm-1", "web1")
	vm.Warm = true
	c := waveOf(t, vm)
	r := c.(audited).Roster
	sched, err := r.Acquire(t.Context(), "scheduler", "s", time.Hour)
	_, jerr := r.Join(t.Context(), roster.Worker{Name: "w1", VMs: 1}, time.Hour)
	granted, gerr := r.Grant(t.Context(), sched, []roster.Granted{{Key: roster.Key{Plan: "wave", VM: "vm-1"}, Worker: "w1"}})
	if err := errors.Join(err, jerr, gerr); err != nil || len(granted) != 1 {
		t.Fatal(err, granted)
	}
	return c, r, roster.Claim{Key: granted[0].Key, Worker: "w1", Epoch: granted[0].Epoch}
}

// quiet is a screen that nobody sees.
func quiet(t *testing.T) *screen {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return newScreen(f)
}

// What the worker says is shown, and is the exit code's; nothing stands afterwards.
func TestAWorkersVerdictIsShown(t *testing.T) {
	for name, test := range map[string]struct {
		answer roster.Rehearsed
		kind   fault.Kind
		shown  []string
	}{
		"booted": {roster.Rehearsed{Report: json.RawMessage(`{"verdict":"booted","why":"login:","accel":"tcg","serial":"/var/s.log"}`), Tail: "login:"}, 0,
			[]string{"It boots", "serial port: /var/s.log", "on worker w1"}},
		"no boot": {roster.Rehearsed{Report: json.RawMessage(`{"verdict":"initramfs","why":"(initramfs)","remedy":"add it","accel":"tcg"}`), Tail: "one\r\n\x1b[2Jtwo\n"}, fault.Unsupported,
			[]string{"The serial port said at the end:\n  one\n", "two"}},
		"failed": {roster.Rehearsed{Failure: &roster.Failure{Kind: "canceled", Text: "the cutover ended it", Hint: "nothing"}}, fault.Canceled, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, r, claim := drivenWave(t)
			var out bytes.Buffer
			a := newApp(nil, &out, quiet(t), os.Getenv, openTerminal)
			vm, err := r.VM(t.Context(), claim.Key)
			if err != nil {
				t.Fatal(err)
			}
			err = a.rehearseVM(t.Context(), replying{c, func(ask roster.Rehearsal) error {
				test.answer.Rehearsal = ask
				return r.Answer(t.Context(), claim, test.answer)
			}}, vm, roster.Rehearsal{ID: "1"})
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

// Who does not wait for the answer does not want it; and who waits hears that there will be none.
func TestARehearsalThatNobodyWaitsForIsTakenBack(t *testing.T) {
	c, r, claim := drivenWave(t)
	a := newApp(nil, new(bytes.Buffer), quiet(t), os.Getenv, openTerminal)
	vm, err := r.VM(t.Context(), claim.Key)
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	_, err = a.askWorker(ctx, replying{c, func(roster.Rehearsal) error {
		interrupt()
		return nil
	}}, vm, roster.Rehearsal{ID: "1"})
	if now, verr := r.VM(t.Context(), claim.Key); !errors.Is(err, context.Canceled) || verr != nil || now.Rehearse != nil {
		t.Errorf("interrupted: %v; it stands: %+v, %v", err, now.Rehearse, verr)
	}
	_, err = a.askWorker(t.Context(), replying{c, func(ask roster.Rehearsal) error {
		return r.Finish(t.Context(), claim, roster.End{State: roster.Queued})
	}}, vm, roster.Rehearsal{ID: "2"})
	if !fault.Is(err, fault.Canceled) || !strings.Contains(fault.HintOf(err), "decamp status wave") {
		t.Errorf("its worker gave it back: %v", err)
	}
}

// A worker that was killed while it was asked, and comes back, does what stands then and not what stood
// before; what it did already it says again. What somebody asked for on its machine stands.
func TestAWorkerThatComesBackIsAskedAnew(t *testing.T) {
	source := &url.URL{Scheme: "esxi", Host: "esx1"}
	p := plan.New(source, &inventory.VM{Ref: "42", Name: "web1", UUID: "u", InstanceUUID: "i"}, "dir:/srv/vm", "raw", "https", time.Unix(1_800_000_000, 0))
	p.Warm = true
	row := roster.VM{Runs: []string{string(p.ID)}, Warm: true}
	dir := t.TempDir()
	serial := filepath.Join(dir, "serial.log")
	if err := os.WriteFile(serial, []byte("login:"), 0o600); err != nil {
		t.Fatal(err)
	}
	var to heard
	comes := func() *mover {
		m := newMover(&assembler{prompts: prompts{log: slog.New(slog.DiscardHandler)}})
		m.store = plan.NewStore(dir)
		if err := m.resume(&works{to: []*destination{{plan: p}}}, roster.GoOn); err != nil {
			t.Fatal(err)
		}
		m.drives[p.ID] = newDrive(row, &to)
		return m
	}
	stands := func(m *mover, want string) {
		t.Helper()
		if r, err := m.store.Rehearsal(p.ID); err != nil || (r == nil) != (want == "") || r != nil && r.ID != want {
			t.Errorf("it stands %+v, %v, want %q", r, err, want)
		}
	}
	m := comes()
	asks := func(id string) {
		t.Helper()
		if err := m.Rehearse(row, roster.Rehearsal{ID: id}); err != nil {
			t.Error(err)
		}
	}
	asks("1")
	asks("1")
	stands(m, "1")
	m = comes()
	stands(m, "")
	asks("2")
	err := m.store.AnswerRehearsal(p.ID, plan.Rehearsed{Rehearsal: plan.Rehearsal{ID: "2"}, Report: json.RawMessage(`{"verdict":"booted","serial":"` + serial + `"}`)})
	if err != nil {
		t.Fatal(err)
	}
	m = comes()
	asks("2")
	stands(m, "")
	if to.rehearsed.ID != "2" || to.rehearsed.Tail != "login:" || to.rehearsed.Report == nil {
		t.Errorf("told %+v", to.rehearsed)
	}
	if err := m.store.AskRehearsal(p.ID, plan.Rehearsal{ID: "here"}); err != nil {
		t.Fatal(err)
	}
	m = comes()
	stands(m, "here")
	if err := m.Rehearse(row, roster.Rehearsal{ID: "3"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("while another stands: %v", err)
	}
	if err := m.TakeBack(row, "here"); err != nil {
		t.Error(err)
	}
	stands(m, "")
}

func TestTailOfASerialLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "serial.log")
	for text, want := range map[string]string{
		"":                        "",
		"one\ntwo\n":              "one\ntwo\n",
		"\xff one line":           "? one line",
		strings.Repeat("x", 9000): strings.Repeat("x", tailBytes),
		"lost\n" + strings.Repeat("a", tailBytes) + "\nthe end\n": "the end\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := tailOf(path); got != want {
			t.Errorf("of %.20q…: %.20q…, want %.20q…", text, got, want)
		}
	}
	if got := tailOf(path + "s"); got != "" {
		t.Errorf("of no file: %q", got)
	}
}
