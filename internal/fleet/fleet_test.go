package fleet

import (
	"context"
	"reflect"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
)

func TestPlanRunsToItsEnd(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(60, 3)...)
	m.caps = map[string]int64{"host:*/vms": 4, "host:esx2/vms": 2}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	p := r.waitEnded("wave")
	if p.Counts[fleetdb.Done] != 60 || p.Failure != nil || p.Listed.IsZero() {
		t.Errorf("the plan ended as %+v", p)
	}
	for host, most := range map[string]int{"esx1": 4, "esx2": 2, "esx3": 4} {
		if got := m.maxPerHost[host]; got > most || got == 0 {
			t.Errorf("%d concurrent transfers on %s, want 1 to %d", got, host, most)
		}
	}
	if want := []string{preHook, postHook}; !reflect.DeepEqual(m.hooks, want) {
		t.Errorf("hooks %v, want %v", m.hooks, want)
	}
	for key, n := range m.moves {
		if n != 1 {
			t.Errorf("%s was moved %d times", key, n)
		}
	}
}

// The first transfers begin while the other VMs are still being listed.
func TestFirstTransfersDoNotWaitForTheListing(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t)
	more := make(chan struct{})
	m.list = func(ctx context.Context, p fleetdb.Plan, found func([]fleetdb.VM) error) error {
		vms := vmsOn(20, 2)
		if err := found(vms[:5]); err != nil {
			return err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
		return found(vms[5:])
	}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	r.waitForVMs("wave", fleetdb.Done, 5)
	if p := r.getPlan("wave"); p.State != fleetdb.PlanListing {
		t.Errorf("the plan is %s while it is listed, want %s", p.State, fleetdb.PlanListing)
	}
	close(more)
	if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != 20 {
		t.Errorf("the plan ended with %v", p.Counts)
	}
}
