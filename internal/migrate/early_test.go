package migrate

import (
	"context"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/target"
)

// eager is a target that takes images early, and fails the first times.
type eager struct {
	target.Target
	b     *bench
	fails int
	calls int
}

func (e *eager) Prepare(_ context.Context, def target.Definition) error {
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
		b.wrap = func(t target.Target) target.Target { e.Target = t; return e }
		out, err := b.warm(2)
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		if rounds := len(b.told(plan.RoundDone)); e.calls != rounds || rounds < 2 {
			t.Errorf("%d early deliveries in %d rounds", e.calls, rounds)
		}
		told := 0
		for _, w := range b.told(plan.Warned) {
			if w.Warning.Code == "early-delivery" && w.Warning.Remedy == "wake it" {
				told++
			}
		}
		if told != fails {
			t.Errorf("%d failures were told, want %d", told, fails)
		}
	}
}
