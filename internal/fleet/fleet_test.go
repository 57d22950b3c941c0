package fleet

import (
	"context"
	"reflect"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
)

func TestPlanRunsToItsEnd(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(60, 3)...)
	m.caps = map[string]int64{"host:*/vms": 4, "host:esx2/vms": 2}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	p := r.waitEnded("wave")
	if p.Counts[fleetdb.Done] != 60 || p.Failure != nil || p.Listed.IsZero() {
		t.Errorf("ended as %+v", p)
	}
	for host, most := range map[string]int{"esx1": 4, "esx2": 2, "esx3": 4} {
		if got := m.most[host]; got > most || got == 0 {
			t.Errorf("%d transfers at a time on %s, of %d", got, host, most)
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

// The first transfers begin while the rest is still being found.
func TestFirstTransfersDoNotWaitForTheListing(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t)
	more := make(chan struct{})
	m.list = func(ctx context.Context, p fleetdb.Plan, tell func([]fleetdb.VM) error) error {
		vms := vmsOn(20, 2)
		if err := tell(vms[:5]); err != nil {
			return err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
		return tell(vms[5:])
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	r.waitFor("wave", fleetdb.Done, 5)
	if p := r.plan("wave"); p.State != fleetdb.PlanListing {
		t.Errorf("the plan is %s while it is listed", p.State)
	}
	close(more)
	if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != 20 {
		t.Errorf("ended with %v", p.Counts)
	}
}
