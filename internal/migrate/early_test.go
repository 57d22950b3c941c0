package migrate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
)

// earlyTarget is a target that accepts images before the cutover.
type earlyTarget struct {
	targets.Target
	b     *testBed
	fails int // number of calls of Prepare that fail, from the first
	calls int // number of calls of Prepare
}

func (e *earlyTarget) Prepare(_ context.Context, def targets.Definition) error {
	e.calls++
	if e.b.vm.Power != inventory.PoweredOn {
		e.b.t.Error("Prepare was called while the VM was off")
	}
	for _, img := range def.Images {
		log, err := manifest.Open(img.Manifest)
		if err != nil {
			return err
		}
		if !log.Complete() {
			e.b.t.Errorf("manifest of disk %d: %d chunks are missing", img.Key, log.Missing())
		}
		if err := log.Close(); err != nil {
			return err
		}
	}
	if e.calls <= e.fails {
		return fault.New(fault.Unreachable, "the node is away").WithHint("wake it")
	}
	return nil
}

// After each proven round the target may accept the images. If it fails, decamp reports a warning with the remedy,
// and the run continues.
func TestEarlyDeliveryAfterRounds(t *testing.T) {
	t.Parallel()
	for fails := range 3 {
		b := newWarmTestBed(t, 1)
		e := &earlyTarget{b: b, fails: fails}
		b.wrap = func(t targets.Target) targets.Target { e.Target = t; return e }
		out, err := b.migrateWarm(2)
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		if o := out.Facts.Outage; o == nil || o.Delivery != 0 || o.Began.IsZero() {
			t.Errorf("outage %+v, want no delivery: the target sends nothing", o)
		}
		if rounds := len(b.eventsOf(journal.RoundDone)); e.calls != rounds || rounds < 2 {
			t.Errorf("%d early deliveries in %d rounds", e.calls, rounds)
		}
		warnings := 0
		for _, w := range b.eventsOf(journal.Warned) {
			if w.Warning.Code == "early-delivery" && w.Warning.Remedy == "wake it" {
				warnings++
			}
		}
		if warnings != fails {
			t.Errorf("%d warnings, want %d", warnings, fails)
		}
	}
}

// sendingTarget is a target that sends the images, or only the changes since its last Prepare.
type sendingTarget struct {
	earlyTarget
	all  bool                // sends complete images
	pass func(time.Duration) // advances the clock
}

func (s *sendingTarget) Publish(ctx context.Context, def targets.Definition) error {
	s.pass(7 * time.Second)
	return s.Target.Publish(ctx, def)
}

func (s *sendingTarget) Sends(held, changed int64) int64 {
	if s.all {
		return held
	}
	return changed
}

// The reported outage lasts from the shutdown to the definition of the VM. It includes the time of the delivery.
func TestOutageIncludesTheDelivery(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 1)
	p := b.newProcess()
	clock := time.Unix(1_800_000_000, 0)
	pass := func(d time.Duration) { b.mu.Lock(); defer b.mu.Unlock(); clock = clock.Add(d) }
	p.Options().Now = func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return clock }
	p.Options().Sleep = func(ctx context.Context, _ time.Duration) error {
		b.writeInGuest()
		pass(20 * time.Second)
		return ctx.Err()
	}
	b.before = func(_ context.Context, op string) error {
		if op == "power off" {
			pass(30 * time.Second)
		}
		return nil
	}
	s := &sendingTarget{earlyTarget: earlyTarget{b: b}, pass: pass}
	b.wrap = func(t targets.Target) targets.Target { s.Target = t; return s }
	out, err := p.Migrate(t.Context(), b.warmPlan(), b.newEnvironment(t, b.dir), migrate.Permit{Cutover: migrate.Cutover{At: clock.Add(5 * time.Minute)}})
	if err := errors.Join(err, p.engine.Close()); err != nil {
		t.Fatal(err)
	}
	o := out.Facts.Outage
	if o == nil || o.Delivery != 7*time.Second || o.Took < 37*time.Second || o.Took > 2*time.Minute {
		t.Fatalf("outage %+v", o)
	}
	summaries := b.eventsOf(journal.Summarized)
	if len(summaries) != 1 || summaries[0].Outage == nil || summaries[0].Outage.Delivery != o.Delivery || summaries[0].Outage.Took != o.Took {
		t.Errorf("summaries %+v", summaries)
	}
}
