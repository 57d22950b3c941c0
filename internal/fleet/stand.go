package fleet

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/roster"
)

// schedulerLease is what the one scheduler of the fleet has.
const schedulerLease = "scheduler"

// candidacies is how often within the length of a lease a candidate asks for it: all VMs wait for a
// scheduler while there is none, and an answer costs the roster next to nothing.
const candidacies = 10

// stand is a candidate for scheduler until ctx ends, and scheduler whenever the lease can be
// had. What goes wrong ends the time in office, not the candidacy: the next one begins with
// what the roster says, unless it cannot be read.
func (n *Node) stand(ctx context.Context) error {
	var c contact
	for {
		t := &tenure{}
		t.renew = func(ctx context.Context, l *roster.Lease) error { return n.Roster.Leases.Renew(ctx, l, n.TTL) }
		err := n.begin(t, func() (err error) {
			t.lease, err = n.Roster.Leases.Acquire(ctx, schedulerLease, n.self, n.TTL)
			return err
		})
		if err == nil || fault.Is(err, fault.Conflict) {
			c.heard(n.Now(), n.TTL)
		}
		if err == nil {
			n.Log.Info("this node is the scheduler", "worker", n.Worker.Name)
			err = n.preside(ctx, t, c.grace(n.Now(), n.TTL))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if fault.Is(err, fault.Corrupt) { // nobody could do better: people have to know
			return err
		}
		if !fault.Is(err, fault.Conflict) {
			n.Log.Info("not the scheduler any more", "err", err)
		}
		if err := n.Sleep(ctx, n.TTL/candidacies); err != nil {
			return err
		}
	}
}

// preside schedules as long as the lease is kept. Nothing is taken from anybody before grace is
// over.
func (n *Node) preside(ctx context.Context, t *tenure, grace time.Duration) error {
	defer func() {
		if ctx.Err() != nil { // in order: the next one need not wait
			last, end := parting(ctx)
			defer end()
			if err := n.Roster.Leases.Free(last, t.lease); err != nil && !errors.Is(err, roster.ErrFenced) {
				n.Log.Debug("scheduler's lease not freed", "err", err)
			}
		}
	}()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.keep(ctx, t) })
	d := newDesk(n, t, g)
	d.grace = grace
	g.Go(func() error { return d.run(ctx) })
	return g.Wait()
}
