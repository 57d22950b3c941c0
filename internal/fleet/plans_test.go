package fleet

import (
	"context"
	"fmt"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
)

// A plan of weight 3 gets three of the four slots of a host, and a plan of weight 1 gets one, whichever began first.
func TestPlansShareByTheirWeights(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(40, 1)...)
	m.caps = map[string]int64{"host:*/vms": 4}
	began, end := make(chan struct{}, 100), make(chan struct{})
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		if err := d.Storage([]string{"disk-" + vm.To[0]}); err != nil {
			return err
		}
		giveBack, err := d.RequestSlot(ctx, fleetdb.First, 0)
		if err != nil {
			return err
		}
		defer giveBack()
		m.addTransfers(vm.Plan, 1)
		defer m.addTransfers(vm.Plan, -1)
		began <- struct{}{}
		select {
		case <-end:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	r.submitPlan("light")
	r.submitText("heavy", string(planText("heavy"))+"weight: 3\n")
	r.startNode(r.nodeConfig(m, "w1"))
	for range 4 {
		receive(t, began)
	}
	for _, plan := range []string{"light", "heavy"} {
		r.waitUntil("the VMs of "+plan, func() bool { return !r.getPlan(plan).Listed.IsZero() })
	}
	for range 12 {
		end <- struct{}{}
		receive(t, began)
	}
	m.mu.Lock()
	if m.perHost["heavy"] != 3 || m.perHost["light"] != 1 {
		t.Errorf("running transfers: %v, want 3 of heavy and 1 of light", m.perHost)
	}
	m.mu.Unlock()
	close(end)
	r.waitEnded("heavy")
	r.waitEnded("light")
}

// A plan that was dropped is submitted under its name again, with another text. Its VMs are executed again by the same
// worker, although their epochs begin from 1 again.
func TestADroppedPlanIsSubmittedAgain(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(5, 1)...)
	r.startNode(r.nodeConfig(m, "w1"))
	for round := range 3 {
		r.submitText("wave", string(planText("wave"))+fmt.Sprintf("weight: %d\n", round+1))
		if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != 5 || p.Failure != nil {
			t.Fatalf("round %d ended as %+v", round, p)
		}
		if err := r.db.Plans.Drop(r.Context(), "wave"); err != nil {
			t.Fatal(err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, n := range m.moves {
		if n != 3 {
			t.Errorf("%s was moved %d times, want 3", key, n)
		}
	}
}
