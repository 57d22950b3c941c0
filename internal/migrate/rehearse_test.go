package migrate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/migrate/warm"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/testboot"
)

var booted = testboot.Report{Verdict: testboot.Booted, Reason: "login:", Accel: testboot.TCG, Elapsed: time.Minute}

// migrateWithRehearsal runs a warm migration in which the user requests a rehearsal after the first round, and the
// cutover after the rehearsal. It returns the outcome and the answer to the request.
func (b *testBed) migrateWithRehearsal(boot func(ctx context.Context, p *process, r migrate.Rehearsing) (testboot.Report, error)) (migrate.Outcome, *journal.Rehearsed) {
	b.t.Helper()
	p := b.newWaitingProcess()
	rounds := 0
	b.onEvent = func(e journal.Event) {
		var err error
		switch e.Kind {
		case journal.RoundDone:
			if rounds++; rounds == 1 {
				err = p.store.AskRehearsal(e.Run, journal.Rehearsal{ID: "1", Expect: "up"})
			}
		case journal.RehearsalDone:
			err = p.store.SendCommand(e.Run, journal.CutOver)
		}
		if err != nil {
			b.t.Error(err)
		}
	}
	env := b.newEnvironment(b.t, b.dir)
	env.Rehearse = func(ctx context.Context, r migrate.Rehearsing) (testboot.Report, error) { return boot(ctx, p, r) }
	out, err := p.Migrate(b.t.Context(), b.warmPlan(), env, migrate.Permit{})
	if err := errors.Join(err, p.engine.Close()); err != nil {
		b.t.Fatal(err)
	}
	answer, err := p.store.Rehearsed(out.Run)
	if err != nil || answer == nil || answer.ID != "1" {
		b.t.Fatalf("answer %+v, %v", answer, err)
	}
	if request, err := p.store.Rehearsal(out.Run); request != nil || err != nil {
		b.t.Errorf("the request remains: %+v, %v", request, err)
	}
	if migrate.FileExists(scratchFolder(p.store, out.Run)) {
		b.t.Error("the folder of the rehearsal remains")
	}
	return out, answer
}

// readDisks returns the content of the disks that a rehearsal boots, by name.
func readDisks(t *testing.T, r migrate.Rehearsing) map[string][]byte {
	all := map[string][]byte{}
	for path, src := range r.Disks {
		p := make([]byte, src.Size())
		if err := src.ReadAt(context.Background(), p, 0); err != nil {
			t.Error(err)
		}
		all[filepath.Base(path)] = p
	}
	return all
}

// A rehearsal boots the converted images of one round. They do not change while other rounds write to the
// images.
func TestRehearsalDuringRounds(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 40)
	b.setConversion(journal.Virtio)
	b.convert = func(ctx context.Context, disks []convert.Disk, o convert.Options) (convert.Result, error) {
		r, err := convertWithEdits(ctx, disks, o)
		r.GuestAgent = true // the conversion would install it
		return r, err
	}
	out, answer := b.migrateWithRehearsal(func(ctx context.Context, p *process, rehearsal migrate.Rehearsing) (testboot.Report, error) {
		before, rounds := readDisks(t, rehearsal), len(b.eventsOf(journal.RoundDone))
		for deadline := time.Now().Add(10 * time.Minute); len(b.eventsOf(journal.RoundDone)) < rounds+3; {
			if time.Now().After(deadline) || ctx.Err() != nil {
				t.Fatalf("no three rounds during the rehearsal (%v)", ctx.Err())
			}
			time.Sleep(time.Millisecond)
		}
		if now := readDisks(t, rehearsal); !bytes.Equal(before["2000"], now["2000"]) || !bytes.Equal(before["2001"], now["2001"]) {
			t.Error("the booted disks changed")
		}
		if text := string(before["2001"][8192:]); !strings.HasPrefix(text, "UUID=8d1a") {
			t.Error("disk 2001 is not converted")
		}
		if rehearsal.Expect != "up" || !strings.Contains(rehearsal.Domain, b.dir) || !strings.HasSuffix(rehearsal.Domain, "and an agent") || !strings.HasPrefix(rehearsal.Keep, p.store.Folder(b.plan().ID)) {
			t.Errorf("%+v", rehearsal)
		}
		return booted, nil
	})
	b.checkConverted(out)
	b.checkNoSnapshots()
	var report testboot.Report
	if err := json.Unmarshal(answer.Report, &report); err != nil || !report.Booted() || answer.Failure != nil {
		t.Errorf("answer %+v, %v", answer, err)
	}
	if e := b.eventsOf(journal.RehearsalDone); len(e) != 1 || e[0].Message != "rehearsal: it boots, after 1m0s on tcg: login:" {
		t.Errorf("events %+v", e)
	}
}

// A run continues after its rehearsal, also if the rehearsal fails or is canceled.
func TestRehearsals(t *testing.T) {
	t.Parallel()
	waits := func(order func(p *process) error) func(context.Context, *process, migrate.Rehearsing) (testboot.Report, error) {
		return func(ctx context.Context, p *process, _ migrate.Rehearsing) (testboot.Report, error) {
			if err := order(p); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return testboot.Report{}, ctx.Err()
		}
	}
	var id journal.ID
	for name, c := range map[string]struct {
		boot func(context.Context, *process, migrate.Rehearsing) (testboot.Report, error)
		kind string // kind of the failure; empty for none
		want string // text in the message
	}{
		"no QEMU": {func(context.Context, *process, migrate.Rehearsing) (testboot.Report, error) {
			return testboot.Report{}, fault.New(fault.NotFound, "no QEMU")
		}, "not-found", "no QEMU"},
		"it does not boot": {func(context.Context, *process, migrate.Rehearsing) (testboot.Report, error) {
			return testboot.Report{Verdict: testboot.Initramfs, Reason: "(initramfs)"}, nil
		}, "", "rehearsal: it does not boot (initramfs): (initramfs)"},
		"cutover": {waits(func(p *process) error { return p.store.SendCommand(id, journal.CutOver) }), "canceled", "the cutover ended the rehearsal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newWarmTestBed(t, 41)
			id = b.plan().ID
			out, answer := b.migrateWithRehearsal(c.boot)
			b.checkPublished(out)
			if (answer.Failure == nil) != (c.kind == "") || answer.Failure != nil && answer.Failure.Kind != c.kind {
				t.Errorf("failure %+v, want kind %q", answer.Failure, c.kind)
			}
			if e := b.eventsOf(journal.RehearsalDone); len(e) != 1 || !strings.Contains(e[0].Message, c.want) {
				t.Errorf("events %+v, want %q", e, c.want)
			}
		})
	}
}

// stopWarmRun starts a warm migration and stops it before its second round, or during that round.
func (b *testBed) stopWarmRun(inRound bool) {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	defer stop()
	p := b.newProcess()
	var rounds atomic.Int32
	b.onEvent = func(e journal.Event) {
		if e.Kind == journal.StepStarted && e.Step == stepRound {
			rounds.Add(1)
		}
		if e.Kind == journal.StepStarted && e.Step == stepWait && !inRound {
			stop()
		}
	}
	b.before = func(ctx context.Context, op string) error {
		if op == "vm" && rounds.Load() == 2 {
			stop()
			<-ctx.Done()
		}
		return ctx.Err()
	}
	cutover := migrate.Cutover{Interval: time.Hour} // longer than the run
	if inRound {
		cutover.Interval = time.Nanosecond
	}
	if _, err := p.Migrate(ctx, b.warmPlan(), b.newEnvironment(b.t, b.dir), migrate.Permit{Cutover: cutover}); !fault.Is(err, fault.Canceled) {
		b.t.Fatalf("got %v, want a canceled run", err)
	}
	b.onEvent, b.before = nil, failOperation("", nil)
	if err := p.engine.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// A run without a process can be rehearsed from its last round, unless a round was interrupted.
func TestRehearsalOfInterruptedRound(t *testing.T) {
	t.Parallel()
	for _, broken := range []bool{false, true} {
		b := newWarmTestBed(t, 42)
		b.stopWarmRun(broken)
		p := b.newProcess()
		env := b.newEnvironment(t, b.dir)
		boots := 0
		env.Rehearse = func(_ context.Context, r migrate.Rehearsing) (testboot.Report, error) {
			boots++
			if got := readDisks(t, r)["2000"]; !bytes.Equal(got, b.firstImage().now) {
				t.Error("the booted disk 2000 differs from its image")
			}
			return booted, nil
		}
		report, err := warm.Rehearse(t.Context(), p.Migrator, b.plan().ID, env, journal.Rehearsal{ID: "1"})
		if cerr := p.engine.Close(); cerr != nil {
			t.Fatal(cerr)
		}
		switch {
		case broken && (!fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" || boots > 0):
			t.Errorf("after an interrupted round: %v", err)
		case !broken && (err != nil || !report.Booted() || boots != 1):
			t.Errorf("%+v, %v", report, err)
		}
		if events, err := p.store.Events(b.plan().ID); err != nil || slices.ContainsFunc(events, func(e journal.Event) bool { return e.Kind == journal.RehearsalDone }) == broken {
			t.Errorf("journal %+v, %v", events, err)
		}
		out, err := b.migrateWarm(1)
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
	}
}

// failFirstConversions returns a conversion that fails the given number of times, and then succeeds.
func failFirstConversions(times int, err error) func(context.Context, []convert.Disk, convert.Options) (convert.Result, error) {
	return func(ctx context.Context, disks []convert.Disk, o convert.Options) (convert.Result, error) {
		if times--; times >= 0 {
			return convert.Result{}, err
		}
		return convertWithEdits(ctx, disks, o)
	}
}

// The inspection after the first round tests whether the guest can be converted. Only a definite refusal ends the
// run, while the VM is on. The same command does another round before the next inspection.
func TestInspectionTestsConvertibility(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for name, c := range map[string]struct {
		err      error
		hardware journal.Hardware
		ends     bool
		warned   string
	}{
		"no drivers":               {fault.New(fault.Unsupported, "no drivers").WithHint("install them"), journal.Virtio, true, ""},
		"no drivers, auto":         {fault.New(fault.Unsupported, "no drivers"), journal.AutoHardware, false, "not-converted"},
		"no room":                  {fault.New(fault.Full, "no room").WithHint("make some"), journal.Virtio, true, ""},
		"a journal to be replayed": {fault.New(fault.Conflict, "a journal").WithHint("shut it down"), journal.Virtio, false, "not-looked"},
		"damaged":                  {fault.New(fault.Corrupt, "damaged"), journal.Virtio, false, "not-looked"},
		"the appliance hangs":      {fault.New(fault.Transient, "it did not end"), journal.Virtio, false, "not-looked"},
		"it can":                   {nil, journal.Virtio, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newWarmTestBed(t, 43)
			b.setConversion(c.hardware)
			if c.err != nil {
				b.convert = failFirstConversions(1, c.err)
			}
			e := &earlyTarget{b: b}
			b.wrap = func(t targets.Target) targets.Target { e.Target = t; return e }
			b.interfere = func(e journal.Event) bool {
				if left, _ := filepath.Glob(filepath.Join(b.dir, "*.overlay")); left != nil && e.Kind == journal.RoundDone {
					t.Errorf("overlays %v of the inspection remain", left)
				}
				return false
			}
			out, err := b.migrateWarm(3)
			if c.ends {
				hint := fault.HintOf(err)
				if fault.KindOf(err) != fault.KindOf(c.err) || !strings.Contains(hint, fault.HintOf(c.err)) || !strings.Contains(hint, "was not powered off") {
					t.Errorf("%v (remedy: %s)", err, hint)
				}
				if b.vm.Power != inventory.PoweredOn || slices.Contains(b.ops, "power off") {
					t.Error("the VM was powered off")
				}
				b.checkNoSnapshots()
				if e.calls > 0 {
					t.Error("images were delivered before the inspection")
				}
				rounds := len(b.eventsOf(journal.RoundDone))
				if out, err = b.migrateWarm(1); len(b.eventsOf(journal.RoundDone)) != rounds+1 {
					t.Errorf("%d rounds, then %d: want one more before the next inspection", rounds, len(b.eventsOf(journal.RoundDone)))
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			b.checkConverted(out)
			if i := slices.IndexFunc(b.eventsOf(journal.Warned), func(e journal.Event) bool { return e.Step == stepInspect && e.Warning.Code != "no-boot-code" }); (i >= 0) != (c.warned != "") || i >= 0 && b.eventsOf(journal.Warned)[i].Warning.Code != c.warned {
				t.Errorf("warnings %+v", b.eventsOf(journal.Warned))
			}
			if slices.ContainsFunc(out.Facts.Warnings, func(w inventory.Warning) bool { return w.Code == "not-looked" || w.Code == "not-converted" }) {
				t.Errorf("outdated warnings are recorded: %+v", out.Facts.Warnings)
			}
		})
	}
}

// A VM whose trial waits for other trials reports the reason, and the end of the wait.
func TestWaitingTrialsReportTheReason(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	p := b.newProcess()
	env := b.newEnvironment(t, b.dir)
	returned := false
	env.Boot = func(context.Context, string, []testboot.Static) (testboot.Report, error) { return booted, nil }
	env.Trials = func(_ context.Context, waits func(string)) (func(), error) {
		waits("one boots")
		return func() { returned = true }, nil
	}
	out, err := p.Migrate(t.Context(), b.plan(), env, migrate.Permit{Trial: true})
	if err := errors.Join(err, p.engine.Close()); err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if e := b.eventsOf(journal.Waiting); len(e) != 2 || e[0].Message != "one boots" || e[0].Step != "verify" || e[1].Message != "" || !returned {
		t.Errorf("events %+v, slot returned %v", e, returned)
	}
}

// The next start of the run removes the folder of a killed rehearsal.
func TestFolderOfAKilledRehearsalIsRemoved(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 44)
	p := b.newProcess()
	scratch := scratchFolder(p.store, b.plan().ID)
	if err := errors.Join(os.MkdirAll(filepath.Join(scratch, "trial-1"), 0o700), p.engine.Close()); err != nil {
		t.Fatal(err)
	}
	out, err := b.migrateWarm(1)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if migrate.FileExists(scratch) {
		t.Error("the folder remains")
	}
}
