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

// eager is a target that takes images early, and fails the first times.
type eager struct {
	targets.Target
	b     *bench
	fails int
	calls int
}

func (e *eager) Prepare(_ context.Context, def targets.Definition) error {
	e.calls++
	if e.b.vm.Power != inventory.PoweredOn {
		e.b.t.Error("it was asked to while the VM was off")
	}
	for _, img := range def.Images {
		log, err := manifest.Open(img.Manifest)
		if err != nil {
			return err
		}
		if !log.Complete() {
			e.b.t.Errorf("disk %d lacks %d chunks", img.Key, log.Missing())
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

// After each proven round the target may take what is there. What it cannot is told, with the remedy,
// and the run goes on.
func TestDeliversEarly(t *testing.T) {
	t.Parallel()
	for fails := range 3 {
		b := warmBench(t, 1)
		e := &eager{b: b, fails: fails}
		b.wrap = func(t targets.Target) targets.Target { e.Target = t; return e }
		out, err := b.warm(2)
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		if o := out.Facts.Outage; o == nil || o.Delivery != 0 || o.Began.IsZero() {
			t.Errorf("the outage: %+v, of a target that sends nothing", o)
		}
		if rounds := len(b.told(journal.RoundDone)); e.calls != rounds || rounds < 2 {
			t.Errorf("%d early deliveries in %d rounds", e.calls, rounds)
		}
		told := 0
		for _, w := range b.told(journal.Warned) {
			if w.Warning.Code == "early-delivery" && w.Warning.Remedy == "wake it" {
				told++
			}
		}
		if told != fails {
			t.Errorf("%d failures were told, want %d", told, fails)
		}
	}
}

// sending is a target that sends what changed since it took images early, or all of them.
type sending struct {
	eager
	all  bool
	pass func(time.Duration) // moves the clock on
}

func (s *sending) Publish(ctx context.Context, def targets.Definition) error {
	s.pass(7 * time.Second)
	return s.Target.Publish(ctx, def)
}

func (s *sending) Sends(held, changed int64) int64 {
	if s.all {
		return held
	}
	return changed
}

// The outage that is told in the end lasts from the shutdown to the definition, and names the delivery.
func TestOutageIncludesTheDelivery(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 1)
	p := b.process()
	clock := time.Unix(1_800_000_000, 0)
	pass := func(d time.Duration) { b.mu.Lock(); defer b.mu.Unlock(); clock = clock.Add(d) }
	p.Options().Now = func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return clock }
	p.Options().Sleep = func(ctx context.Context, _ time.Duration) error { b.work(); pass(20 * time.Second); return ctx.Err() }
	b.before = func(_ context.Context, op string) error {
		if op == "power off" {
			pass(30 * time.Second)
		}
		return nil
	}
	s := &sending{eager: eager{b: b}, pass: pass}
	b.wrap = func(t targets.Target) targets.Target { s.Target = t; return s }
	out, err := p.Migrate(t.Context(), b.warmPlan(), b.rig(t, b.dir), migrate.Permit{Cutover: migrate.Cutover{At: clock.Add(5 * time.Minute)}})
	if err := errors.Join(err, p.engine.Close()); err != nil {
		t.Fatal(err)
	}
	o := out.Facts.Outage
	if o == nil || o.Delivery != 7*time.Second || o.Took < 37*time.Second || o.Took > 2*time.Minute {
		t.Fatalf("the outage was %+v", o)
	}
	told := b.told(journal.Summarized)
	if len(told) != 1 || told[0].Outage == nil || told[0].Outage.Delivery != o.Delivery || told[0].Outage.Took != o.Took {
		t.Errorf("the summary has %+v", told)
	}
}
