package fleet

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// schedulerLease is the name of the lease that makes a node the scheduler of the fleet.
const schedulerLease = "scheduler"

// acquireDivisor is how often a candidate requests the lease within its length. Without a scheduler all
// VMs wait, and a request is cheap for the database.
const acquireDivisor = 10

// runForScheduler requests the scheduler's lease until ctx ends, and schedules while it has the lease.
// An error ends the term and not the candidacy: the next term begins with the content of the fleet
// database. A corrupt database ends the candidacy.
func (n *Node) runForScheduler(ctx context.Context) error {
	var c databaseContact
	for {
		l := &heldLease{}
		l.renew = func(ctx context.Context, l *fleetdb.Lease) error { return n.Database.Leases.Renew(ctx, l, n.TTL) }
		err := n.acquireLease(l, func() (err error) {
			l.lease, err = n.Database.Leases.Acquire(ctx, schedulerLease, n.id, n.TTL)
			return err
		})
		if err == nil || fault.Is(err, fault.Conflict) {
			c.noteAnswer(n.Now(), n.TTL)
		}
		if err == nil {
			n.Log.Info("this node is the scheduler", "worker", n.Worker.Name)
			err = n.scheduleTerm(ctx, l, c.graceLeft(n.Now(), n.TTL))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if fault.Is(err, fault.Corrupt) { // no other node can read it either: the operator must repair it
			return err
		}
		if !fault.Is(err, fault.Conflict) {
			n.Log.Info("this node is no longer the scheduler", "err", err)
		}
		if err := n.Sleep(ctx, n.TTL/acquireDivisor); err != nil {
			return err
		}
	}
}

// scheduleTerm schedules for one term: until the lease is lost, an error occurs or ctx ends. It takes
// no VM from a worker before grace is over.
func (n *Node) scheduleTerm(ctx context.Context, l *heldLease, grace time.Duration) error {
	defer func() {
		if ctx.Err() != nil { // stopped: the next scheduler need not wait until the lease expires
			last, end := lastWritesContext(ctx)
			defer end()
			if err := n.Database.Leases.Free(last, l.lease); err != nil && !errors.Is(err, fleetdb.ErrFenced) {
				n.Log.Debug("scheduler's lease not released", "err", err)
			}
		}
	}()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.keepLease(ctx, l) })
	s := newScheduler(n.Config, l.lease, grace, g)
	g.Go(func() error { return s.run(ctx) })
	return g.Wait()
}

// A databaseContact is the time since which the fleet database has responded without a long gap. Other
// processes could renew their leases since then.
type databaseContact struct{ since, last time.Time }

// noteAnswer records a response of the database. The contact starts again after a gap in which leases
// of live processes may have expired: a lease of length ttl is renewed three times in ttl, so none
// expires in a gap of half of it. The wall clock counts as well, because the monotonic clock stops
// while a machine is suspended.
func (c *databaseContact) noteAnswer(now time.Time, ttl time.Duration) {
	if gap := max(now.Sub(c.last), now.Round(0).Sub(c.last.Round(0))); gap > ttl/2 {
		c.since = now
	}
	c.last = now
}

// graceLeft returns how long other processes may still need to renew their leases; at most ttl.
func (c *databaseContact) graceLeft(now time.Time, ttl time.Duration) time.Duration {
	return min(max(ttl-now.Sub(c.since), 0), ttl)
}
