package notify

import (
	"context"
	"encoding/json"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

const (
	// startSlack is how long before its first start on a database a notifier reports events: the process
	// opens the database before it starts the notifier.
	startSlack = time.Minute

	// maxKnown bounds the IDs of events that a collector remembers.
	maxKnown = 100_000
)

// A collector finds events in the changes of the fleet database, and queues them for the receivers that
// want them.
type collector struct {
	*Notifier
	lease  fleetdb.Lease              // lease of the term
	rev    int64                      // revision up to which events are queued
	oldest time.Time                  // events before it are not reported; zero unless this is the first start on a database
	orders map[string]fleetdb.Command // commands of plans
	known  map[string]bool            // IDs of events that are queued; it saves writes only
	queued func()                     // is called after notifications were queued
	stored bool                       // the database has a revision up to which events are queued
}

// newCollector returns a collector before load. It calls queued after it has queued notifications.
func newCollector(n *Notifier, l fleetdb.Lease, queued func()) *collector {
	return &collector{Notifier: n, lease: l, queued: queued, orders: map[string]fleetdb.Command{}, known: map[string]bool{}}
}

// run collects until ctx ends.
func (c *collector) run(ctx context.Context) error {
	if err := c.load(ctx); err != nil {
		return err
	}
	for {
		if err := c.collect(ctx); err != nil {
			return err
		}
		if err := c.database.Feed.WaitForChange(ctx, c.rev); err != nil {
			return err
		}
	}
}

// load reads the revision up to which earlier terms have queued events, and the commands of plans.
func (c *collector) load(ctx context.Context) error {
	rev, known, err := c.database.Notifications.Revision(ctx)
	if err != nil {
		return err
	}
	if c.rev, c.stored = rev, known; !known {
		now, err := c.database.Now(ctx)
		if err != nil {
			return err
		}
		c.oldest = now.Add(-time.Since(c.started) - startSlack)
	}
	plans, err := c.database.Plans.List(ctx)
	for _, p := range plans {
		c.orders[p.Name] = p.Command
	}
	return err
}

// collect queues the events of all changes since the last call.
func (c *collector) collect(ctx context.Context) error {
	for {
		changes, err := c.database.Feed.Changes(ctx, c.rev)
		if err != nil {
			return err
		}
		if changes.Rev <= c.rev {
			return nil
		}
		now, err := c.database.Now(ctx)
		if err != nil {
			return err
		}
		events, err := c.eventsOf(ctx, changes, now)
		if err != nil {
			return err
		}
		if err := c.enqueue(ctx, changes.Rev, events, now); err != nil {
			return err
		}
		c.rev = changes.Rev
	}
}

// eventsOf returns the events of changes.
func (c *collector) eventsOf(ctx context.Context, changes fleetdb.Changes, now time.Time) (events []Event, err error) {
	for _, name := range changes.Dropped {
		delete(c.orders, name)
	}
	for _, p := range changes.Plans {
		c.orders[p.Name] = p.Command
		e, ok, err := c.eventOfPlan(ctx, p, now)
		if err != nil {
			return nil, err
		}
		if ok {
			events = append(events, e)
		}
	}
	for _, v := range changes.VMs {
		e, ok, err := c.eventOfVM(ctx, v, now)
		if err != nil {
			return nil, err
		}
		if ok {
			events = append(events, e)
		}
	}
	return events, nil
}

// eventOfPlan returns the event of a changed plan; false without one.
func (c *collector) eventOfPlan(ctx context.Context, p fleetdb.Plan, now time.Time) (Event, bool, error) {
	if p.State.IsFinal() { // the change has no counts
		full, err := c.database.Plans.Get(ctx, p.Name)
		if fault.Is(err, fault.NotFound) {
			return Event{}, false, nil
		}
		if err != nil {
			return Event{}, false, err
		}
		p = full
	}
	e, ok := planEvent(p, now)
	return e, ok, nil
}

// eventOfVM returns the event of a changed VM; false without one.
func (c *collector) eventOfVM(ctx context.Context, v fleetdb.VM, now time.Time) (Event, bool, error) {
	switch {
	case v.State == fleetdb.Failed:
		return failedEvent(v), true, nil
	case v.State == fleetdb.Done && v.Warm:
		doc, err := c.database.Records.Get(ctx, fleetdb.OutageOfVM, v.Key.String())
		var o fleetdb.Outage
		if err != nil || doc == nil || json.Unmarshal(doc, &o) != nil {
			return Event{}, false, err
		}
		return overrunEvent(v, o), isOverrun(o), nil
	case isInRounds(v, c.orders[v.Plan]):
		return c.waitingEvent(ctx, v, now)
	}
	return Event{}, false, nil
}

// waitingEvent returns the event of a VM that waits for its cutover; false if it has no complete round yet,
// if it cuts over without a command, or if the event is queued already. If rounds take longer than
// their interval, waitStep ends at once and may never be read; the estimate of the outage then shows that a
// round is complete.
func (c *collector) waitingEvent(ctx context.Context, v fleetdb.VM, now time.Time) (Event, bool, error) {
	if c.known[dueEvent(v, now, 0).ID] {
		return Event{}, false, nil
	}
	full, err := c.database.VMs.Get(ctx, v.Key)
	if fault.Is(err, fault.NotFound) {
		return Event{}, false, nil
	}
	if err != nil || !isManual(full.Spec) {
		return Event{}, false, err
	}
	progress, err := c.database.Progress.List(ctx, v.Plan)
	if err != nil {
		return Event{}, false, err
	}
	var estimate time.Duration
	for _, p := range progress {
		if p.VM == v.VM {
			estimate = p.Outage
		}
	}
	return dueEvent(v, now, estimate), v.Step == waitStep || estimate > 0, nil
}

// enqueue queues events for the receivers that want them. Events that are too old for a receiver are
// left out: the fleet was without a notifier meanwhile.
func (c *collector) enqueue(ctx context.Context, rev int64, events []Event, now time.Time) error {
	var all []fleetdb.Notification
	for _, e := range events {
		if c.known[e.ID] || e.Time.Before(c.oldest) {
			continue
		}
		doc, err := json.Marshal(e)
		if err != nil {
			return err
		}
		for _, name := range c.receivers.Names() {
			if to := c.receivers.all[name]; to.wants(e) && now.Sub(e.Time) < to.giveUp {
				all = append(all, fleetdb.Notification{Receiver: name, ID: e.ID, Doc: doc})
			}
		}
	}
	if len(all) == 0 && c.stored {
		return nil
	}
	refused, err := c.database.Notifications.Add(ctx, c.lease, rev, all)
	if err != nil {
		return err
	}
	c.stored = true
	if refused > 0 {
		c.log.Error("notifications dropped: too many are pending", "count", refused)
	}
	if len(c.known)+len(all) > maxKnown {
		clear(c.known)
	}
	for _, n := range all {
		c.known[n.ID] = true
	}
	if len(all) > 0 {
		c.queued()
	}
	return nil
}
