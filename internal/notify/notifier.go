package notify

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sleep"
)

const (
	leaseName = "notifier"       // name of the lease of the process that sends
	leaseTime = 15 * time.Second // length of that lease
	renewals  = 3                // renewals within the length of the lease

	// lastDelivery bounds a delivery after its notifier has been stopped, and lastWrites the writes. The
	// lease lasts at least 10 s after a renewal that was in time.
	lastDelivery = 8 * time.Second
	lastWrites   = 5 * time.Second
)

// Notifier queues and sends the notifications of a fleet while it has the lease.
type Notifier struct {
	database  *fleetdb.Database // fleet database
	receivers *Receivers        // receivers of the notification file
	owner     string            // name of this process, different in each process
	log       *slog.Logger      // receives failures
	started   time.Time         // time of New
	pauses    pauses            // pauses after failed attempts
}

// New returns a notifier that is not running. owner is a name that no other process has.
func New(r *fleetdb.Database, to *Receivers, owner string, log *slog.Logger) *Notifier {
	return &Notifier{database: r, receivers: to, owner: owner, log: log, started: time.Now(), pauses: defaultPauses}
}

// Run sends notifications until ctx ends. An error, such as a database that is away, does not end it.
func (n *Notifier) Run(ctx context.Context) {
	for failed := false; ctx.Err() == nil; {
		err := n.runTerm(ctx, (*term).run)
		switch {
		case ctx.Err() != nil:
			return
		case fault.Is(err, fault.Conflict): // another process sends
			failed = false
		case err != nil && !failed:
			failed = true
			n.log.Warn("notifications wait", "err", err)
		}
		_ = sleep.For(ctx, leaseTime/renewals) // fails if ctx ends
	}
}

// Flush queues the events until now and attempts each due notification once. What it does not deliver
// stays in the queue. It does nothing if another process sends.
func (n *Notifier) Flush(ctx context.Context) {
	if err := n.runTerm(ctx, (*term).flush); err != nil && !fault.Is(err, fault.Conflict) {
		n.log.Warn("notifications wait for the next start", "err", err)
	}
}

// runTerm acquires the lease, calls do, and frees the lease.
func (n *Notifier) runTerm(ctx context.Context, do func(*term, context.Context) error) error {
	l, err := n.database.Leases.Acquire(ctx, leaseName, n.owner, leaseTime)
	if err != nil {
		return err
	}
	defer func() {
		last, end := context.WithTimeout(context.WithoutCancel(ctx), lastWrites)
		defer end()
		if err := n.database.Leases.Free(last, l); err != nil && !errors.Is(err, fleetdb.ErrFenced) {
			n.log.Debug("notifier's lease not freed", "err", err)
		}
	}()
	return do(newTerm(n, l), ctx)
}

// A term is the time in which a notifier has the lease.
type term struct {
	*Notifier
	lease     fleetdb.Lease // lease of the term
	collector *collector    // finds events
	couriers  []*courier    // send, one for each receiver
}

// newTerm returns a term with the lease l.
func newTerm(n *Notifier, l fleetdb.Lease) *term {
	t := &term{Notifier: n, lease: l}
	t.collector = newCollector(n, l, t.wakeCouriers)
	for _, name := range n.receivers.Names() {
		t.couriers = append(t.couriers, &courier{Notifier: n, lease: l, receiver: n.receivers.all[name], wake: make(chan struct{}, 1)})
	}
	return t
}

// run collects and sends until ctx ends, the lease is lost or the database is away.
func (t *term) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return t.keepLease(ctx) })
	g.Go(func() error { return t.collector.run(ctx) })
	for _, c := range t.couriers {
		g.Go(func() error { return c.run(ctx) })
	}
	return g.Wait()
}

// keepLease renews the lease until ctx ends or the lease is lost.
func (t *term) keepLease(ctx context.Context) error {
	l := t.lease
	for {
		if err := sleep.For(ctx, leaseTime/renewals); err != nil {
			return err
		}
		err := t.database.Leases.Renew(ctx, &l, leaseTime)
		if errors.Is(err, fleetdb.ErrFenced) || err != nil && !time.Now().Before(l.ValidUntil.Add(-leaseTime/renewals)) {
			return err
		}
	}
}

// wakeCouriers makes the couriers look for new notifications.
func (t *term) wakeCouriers() {
	for _, c := range t.couriers {
		select {
		case c.wake <- struct{}{}:
		default: // the courier has not handled the last wake-up yet
		}
	}
}

// flush collects once and sends the due notifications.
func (t *term) flush(ctx context.Context) error {
	if err := t.collector.load(ctx); err != nil {
		return err
	}
	if err := t.collector.collect(ctx); err != nil {
		return err
	}
	var sending sync.WaitGroup
	errs := make([]error, len(t.couriers))
	for i, c := range t.couriers {
		sending.Go(func() { errs[i] = c.sendDue(ctx) })
	}
	sending.Wait()
	return errors.Join(errs...)
}
