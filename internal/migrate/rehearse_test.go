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

// rehearsed runs a warm migration in which a rehearsal is asked for after the first round, and the
// cutover when that has ended. It returns how it did.
func (b *bench) rehearsed(boot func(ctx context.Context, p *process, what migrate.Rehearsing) (testboot.Report, error)) (migrate.Outcome, *journal.Rehearsed) {
	b.t.Helper()
	p := b.waiting()
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
	rig := b.rig(b.t, b.dir)
	rig.Rehearse = func(ctx context.Context, what migrate.Rehearsing) (testboot.Report, error) { return boot(ctx, p, what) }
	out, err := p.Migrate(b.t.Context(), b.warmPlan(), rig, migrate.Permit{})
	if err := errors.Join(err, p.engine.Close()); err != nil {
		b.t.Fatal(err)
	}
	answer, err := p.store.Rehearsed(out.Run)
	if err != nil || answer == nil || answer.ID != "1" {
		b.t.Fatalf("answered %+v, %v", answer, err)
	}
	if asked, err := p.store.Rehearsal(out.Run); asked != nil || err != nil {
		b.t.Errorf("it is asked still: %+v, %v", asked, err)
	}
	if migrate.There(scratchIn(p.store, out.Run)) {
		b.t.Error("its folder is left")
	}
	return out, answer
}

// disksOf reads all that is booted.
func disksOf(t *testing.T, what migrate.Rehearsing) map[string][]byte {
	all := map[string][]byte{}
	for path, src := range what.Disks {
		p := make([]byte, src.Size())
		if err := src.ReadAt(context.Background(), p, 0); err != nil {
			t.Error(err)
		}
		all[filepath.Base(path)] = p
	}
	return all
}

// What is booted is the images as a round left them, with what is converted, and stays so while other
// rounds write to them.
func TestRehearsalWhileRoundsGoOn(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 40)
	b.converts(journal.Virtio)
	b.convert = func(ctx context.Context, disks []convert.Disk, o convert.Options) (convert.Result, error) {
		r, err := editing(ctx, disks, o)
		r.GuestAgent = true // to come
		return r, err
	}
	out, answer := b.rehearsed(func(ctx context.Context, p *process, what migrate.Rehearsing) (testboot.Report, error) {
		was, rounds := disksOf(t, what), len(b.told(journal.RoundDone))
		for deadline := time.Now().Add(10 * time.Minute); len(b.told(journal.RoundDone)) < rounds+3; {
			if time.Now().After(deadline) || ctx.Err() != nil {
				t.Fatalf("no round was done meanwhile (%v)", ctx.Err())
			}
			time.Sleep(time.Millisecond)
		}
		if now := disksOf(t, what); !bytes.Equal(was["2000"], now["2000"]) || !bytes.Equal(was["2001"], now["2001"]) {
			t.Error("what is booted has changed")
		}
		if text := string(was["2001"][8192:]); !strings.HasPrefix(text, "UUID=8d1a") {
			t.Error("it is not converted")
		}
		if what.Expect != "up" || !strings.Contains(what.Domain, b.dir) || !strings.HasSuffix(what.Domain, "and an agent") || !strings.HasPrefix(what.Keep, p.store.Folder(b.plan().ID)) {
			t.Errorf("%+v", what)
		}
		return booted, nil
	})
	b.checkConverted(out)
	b.nothingLeft()
	var report testboot.Report
	if err := json.Unmarshal(answer.Report, &report); err != nil || !report.Booted() || answer.Failure != nil {
		t.Errorf("answered %+v, %v", answer, err)
	}
	if e := b.told(journal.RehearsalDone); len(e) != 1 || e[0].Message != "rehearsal: it boots, after 1m0s on tcg: login:" {
		t.Errorf("told %+v", e)
	}
}

// However a rehearsal ends, its run goes on.
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
		kind string // of the failure
		want string
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
			b := warmBench(t, 41)
			id = b.plan().ID
			out, answer := b.rehearsed(c.boot)
			b.checkPublished(out)
			if (answer.Failure == nil) != (c.kind == "") || answer.Failure != nil && answer.Failure.Kind != c.kind {
				t.Errorf("answered %+v", answer.Failure)
			}
			if e := b.told(journal.RehearsalDone); len(e) != 1 || !strings.Contains(e[0].Message, c.want) {
				t.Errorf("told %+v, want %q", e, c.want)
			}
		})
	}
}

// leftAt runs a warm migration until it waits for its second round, or until it is in that.
func (b *bench) leftAt(inRound bool) {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	defer stop()
	p := b.process()
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
	cutover := migrate.Cutover{Interval: time.Hour} // which is not over before it is stopped
	if inRound {
		cutover.Interval = time.Nanosecond
	}
	if _, err := p.Migrate(ctx, b.warmPlan(), b.rig(b.t, b.dir), migrate.Permit{Cutover: cutover}); !fault.Is(err, fault.Canceled) {
		b.t.Fatalf("it ended with %v", err)
	}
	b.onEvent, b.before = nil, failing("", nil)
	if err := p.engine.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// A run that nobody drives is rehearsed from its last round; one whose round was broken off is not.
func TestRehearsalOfABrokenRound(t *testing.T) {
	t.Parallel()
	for _, broken := range []bool{false, true} {
		b := warmBench(t, 42)
		b.leftAt(broken)
		p := b.process()
		rig := b.rig(t, b.dir)
		boots := 0
		rig.Rehearse = func(_ context.Context, what migrate.Rehearsing) (testboot.Report, error) {
			boots++
			if got := disksOf(t, what)["2000"]; !bytes.Equal(got, b.image().now) {
				t.Error("something else is booted")
			}
			return booted, nil
		}
		report, err := warm.Rehearse(t.Context(), p.Migrator, b.plan().ID, rig, journal.Rehearsal{ID: "1"})
		if cerr := p.engine.Close(); cerr != nil {
			t.Fatal(cerr)
		}
		switch {
		case broken && (!fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" || boots > 0):
			t.Errorf("a broken round: %v", err)
		case !broken && (err != nil || !report.Booted() || boots != 1):
			t.Errorf("%+v, %v", report, err)
		}
		if events, err := p.store.Events(b.plan().ID); err != nil || slices.ContainsFunc(events, func(e journal.Event) bool { return e.Kind == journal.RehearsalDone }) == broken {
			t.Errorf("journaled %+v, %v", events, err)
		}
		out, err := b.warm(1)
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
	}
}

// refusingFirst is a conversion that fails so as often, and then is one.
func refusingFirst(times int, err error) func(context.Context, []convert.Disk, convert.Options) (convert.Result, error) {
	return func(ctx context.Context, disks []convert.Disk, o convert.Options) (convert.Result, error) {
		if times--; times >= 0 {
			return convert.Result{}, err
		}
		return editing(ctx, disks, o)
	}
}

// Whether a guest can be converted is known after the first round. Only what is sure ends the run,
// while the VM runs, and the same command looks at another round.
func TestLook(t *testing.T) {
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
			b := warmBench(t, 43)
			b.converts(c.hardware)
			if c.err != nil {
				b.convert = refusingFirst(1, c.err)
			}
			e := &eager{b: b}
			b.wrap = func(t targets.Target) targets.Target { e.Target = t; return e }
			b.meddle = func(e journal.Event) bool {
				if left, _ := filepath.Glob(filepath.Join(b.dir, "*.overlay")); left != nil && e.Kind == journal.RoundDone {
					t.Errorf("something of the look is kept: %v", left)
				}
				return false
			}
			out, err := b.warm(3)
			if c.ends {
				hint := fault.HintOf(err)
				if fault.KindOf(err) != fault.KindOf(c.err) || !strings.Contains(hint, fault.HintOf(c.err)) || !strings.Contains(hint, "was not powered off") {
					t.Errorf("%v (remedy: %s)", err, hint)
				}
				if b.vm.Power != inventory.PoweredOn || slices.Contains(b.ops, "power off") {
					t.Error("the VM was switched off")
				}
				b.nothingLeft()
				if e.calls > 0 {
					t.Error("images were delivered before they were looked into")
				}
				rounds := len(b.told(journal.RoundDone))
				if out, err = b.warm(1); len(b.told(journal.RoundDone)) != rounds+1 {
					t.Errorf("%d rounds, then %d: want another before the next look", rounds, len(b.told(journal.RoundDone)))
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			b.checkConverted(out)
			if i := slices.IndexFunc(b.told(journal.Warned), func(e journal.Event) bool { return e.Step == stepInspect && e.Warning.Code != "no-boot-code" }); (i >= 0) != (c.warned != "") || i >= 0 && b.told(journal.Warned)[i].Warning.Code != c.warned {
				t.Errorf("warned %+v", b.told(journal.Warned))
			}
			if slices.ContainsFunc(out.Facts.Warnings, func(w inventory.Warning) bool { return w.Code == "not-looked" || w.Code == "not-converted" }) {
				t.Errorf("what is true no more is on record: %+v", out.Facts.Warnings)
			}
		})
	}
}

// A VM that waits because others boot says so, and when it does not any more.
func TestTrialsThatWaitSaySo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.process()
	rig := b.rig(t, b.dir)
	left := false
	rig.Boot = func(context.Context, string, []testboot.Static) (testboot.Report, error) { return booted, nil }
	rig.Trials = func(_ context.Context, waits func(string)) (func(), error) {
		waits("one boots")
		return func() { left = true }, nil
	}
	out, err := p.Migrate(t.Context(), b.plan(), rig, migrate.Permit{Trial: true})
	if err := errors.Join(err, p.engine.Close()); err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if e := b.told(journal.Waiting); len(e) != 2 || e[0].Message != "one boots" || e[0].Step != "verify" || e[1].Message != "" || !left {
		t.Errorf("told %+v, left %v", e, left)
	}
}

// A rehearsal that was killed leaves a folder, which goes with the next start.
func TestWhatAKilledRehearsalLeaves(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 44)
	p := b.process()
	scratch := scratchIn(p.store, b.plan().ID)
	if err := errors.Join(os.MkdirAll(filepath.Join(scratch, "trial-1"), 0o700), p.engine.Close()); err != nil {
		t.Fatal(err)
	}
	out, err := b.warm(1)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if migrate.There(scratch) {
		t.Error("it is left")
	}
}
