package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

// The estimate of a transfer follows its progress: expected to take a minute, it is so slow that it takes thirteen.
func TestEstimatesFollowTheProgress(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(2, 1)...)
	m.caps = map[string]int64{"host:*/vms": 1}
	began, end := make(chan Driver, 2), make(chan struct{})
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		if err := d.Storage([]string{"disk-" + vm.To[0]}); err != nil {
			return err
		}
		giveBack, err := d.RequestSlot(ctx, fleetdb.First, time.Minute)
		if err != nil {
			return err
		}
		defer giveBack()
		began <- d
		select {
		case <-end:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	r.submitPlan("wave")
	c := r.nodeConfig(m, "w1")
	c.TTL = DefaultTTL // the estimates are updated three times in that
	r.startNode(c)
	d := receive(t, began)
	var why string
	r.waitUntil("the estimate", func() bool {
		d.Progress(fleetdb.Progress{Total: 1 << 30, Done: 1 << 28, Read: 1 << 28, Rate: 1 << 20})
		for _, w := range r.schedulerSnapshot().Waiting {
			why = w.Reason
		}
		return why == "host esx1: 1 of 1 vms; next in about 13 min"
	})
	close(end)
	r.waitEnded("wave")
}
