package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

// A transfer is expected to take a minute, and its progress is that of thirteen.
func TestEstimatesFollowTheProgress(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(2, 1)...)
	m.caps = map[string]int64{"host:*/vms": 1}
	began, end := make(chan Driver, 2), make(chan struct{})
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		if err := d.Storage([]string{"disk-" + vm.To[0]}); err != nil {
			return err
		}
		back, err := d.RequestSlot(ctx, fleetdb.First, time.Minute)
		if err != nil {
			return err
		}
		defer back()
		began <- d
		select {
		case <-end:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	r.submit("wave")
	c := r.config(m, "w1")
	c.TTL = DefaultTTL // estimates are updated three times in that
	r.start(c)
	d := next(t, began)
	var why string
	r.wait("the estimate", func() bool {
		d.Progress(fleetdb.Progress{Total: 1 << 30, Done: 1 << 28, Read: 1 << 28, Rate: 1 << 20})
		for _, w := range r.snapshot().Waiting {
			why = w.Reason
		}
		return why == "host esx1: 1 of 1 vms; next in about 13 min"
	})
	close(end)
	r.waitEnded("wave")
}
