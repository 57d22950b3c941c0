package migrate_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// windows are the times in which a VM may be powered off, relative to the start of the test.
type windows [][2]time.Duration

// openFunc returns the function Cutover.Open of a test that started at began.
func (w windows) openFunc(began time.Time) func(time.Time) (bool, time.Time) {
	return func(t time.Time) (bool, time.Time) {
		for _, s := range w {
			from, to := began.Add(s[0]), began.Add(s[1])
			if t.Before(from) {
				return false, from
			}
			if t.Before(to) {
				return true, to
			}
		}
		return false, time.Time{}
	}
}

// migrateInWindows runs a warm migration with a clock that only waits advance. It returns the time of the power-off
// since the start, and the number of rounds. The cutover is at the time at since the start, if at is not 0.
func (b *testBed) migrateInWindows(w windows, at time.Duration, c migrate.Cutover, slotWait func(s migrate.TransferKind) time.Duration) (time.Duration, int) {
	b.t.Helper()
	p := b.newProcess()
	began := time.Unix(1_800_000_000, 0)
	clock := began
	now := func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return clock }
	pass := func(d time.Duration) { b.mu.Lock(); defer b.mu.Unlock(); clock = clock.Add(d) }
	p.Options().Now = now
	p.Options().Sleep = func(ctx context.Context, _ time.Duration) error {
		b.writeInGuest()
		pass(20 * time.Second)
		return ctx.Err()
	}
	var off time.Duration
	b.before = func(_ context.Context, op string) error {
		if op == "power off" {
			off = now().Sub(began)
		}
		return nil
	}
	if slotWait != nil {
		b.slots = &slotQueue{grant: func(_ context.Context, s migrate.TransferKind) error { pass(slotWait(s)); return nil }}
	}
	c.Open = w.openFunc(began)
	if at > 0 {
		c.At = began.Add(at)
	}
	out, err := p.Migrate(b.t.Context(), b.warmPlan(), b.newEnvironment(b.t, b.dir), migrate.Permit{Cutover: c})
	if err := errors.Join(err, p.engine.Close()); err != nil {
		b.t.Fatal(err)
	}
	b.checkPublished(out)
	b.checkNoSnapshots()
	return off, len(out.Facts.Warm.Rounds)
}

func TestCutoverStaysWithinWindow(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for name, c := range map[string]struct {
		windows  windows
		at       time.Duration
		cutover  migrate.Cutover
		from, to time.Duration
	}{
		"alone":         {windows{{10 * time.Minute, 20 * time.Minute}}, 0, migrate.Cutover{}, 10 * time.Minute, 11 * time.Minute},
		"too short":     {windows{{10 * time.Minute, 10*time.Minute + shutdownGuess - time.Second}, {30 * time.Minute, time.Hour}}, 0, migrate.Cutover{}, 30 * time.Minute, 31 * time.Minute},
		"with a time":   {windows{{10 * time.Minute, 20 * time.Minute}}, 5 * time.Minute, migrate.Cutover{}, 10 * time.Minute, 11 * time.Minute},
		"a time within": {windows{{10 * time.Minute, 20 * time.Minute}}, 15 * time.Minute, migrate.Cutover{}, 15 * time.Minute, 16 * time.Minute},
		"with a budget": {windows{{10 * time.Minute, 20 * time.Minute}}, 0, migrate.Cutover{Budget: time.Hour, Interval: 4 * time.Minute}, 10 * time.Minute, 11 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newWarmTestBed(t, 31)
			off, rounds := b.migrateInWindows(c.windows, c.at, c.cutover, nil)
			if off < c.from || off >= c.to {
				t.Errorf("powered off after %v, want %v to %v", off, c.from, c.to)
			}
			if rounds < 3 {
				t.Errorf("%d rounds, want a round just before the outage", rounds)
			}
		})
	}
}

// A run that gets its slot after its window has closed waits for the next window, and does more rounds.
func TestWindowClosesWhileRunWaitsForSlot(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 32)
	waits := 15 * time.Minute
	off, _ := b.migrateInWindows(windows{{10 * time.Minute, 20 * time.Minute}, {time.Hour, 2 * time.Hour}}, 0, migrate.Cutover{}, func(s migrate.TransferKind) time.Duration {
		d := waits
		if s == migrate.AtCutover {
			waits = 0
			return d
		}
		return 0
	})
	if off < time.Hour || off > 61*time.Minute {
		t.Errorf("powered off after %v, want 1h0m to 1h1m", off)
	}
	b.checkSlots(migrate.First, migrate.Again, migrate.AtCutover, migrate.Again, migrate.Again, migrate.AtCutover)
	if notes := b.eventsOf(journal.Noted); !slices.ContainsFunc(notes, func(e journal.Event) bool { return e.Step == stepPowerOff }) {
		t.Errorf("notes %+v, want one of the power-off step", notes)
	}
}

// A command of the user to cut over is executed outside of the window, too.
func TestCommandIsExecutedOutsideOfTheWindow(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 33)
	b.onEvent = func(e journal.Event) {
		if e.Kind == journal.StepStarted && e.Step == stepWait {
			if err := journal.NewStore(b.dir+"/state").SendCommand(e.Run, journal.CutOver); err != nil {
				t.Error(err)
			}
		}
	}
	if off, _ := b.migrateInWindows(windows{{24 * time.Hour, 25 * time.Hour}}, 0, migrate.Cutover{}, nil); off > time.Minute {
		t.Errorf("powered off after %v, want at most one minute", off)
	}
}
