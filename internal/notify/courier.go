package notify

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sleep"
)

// pauses are the pauses after failed attempts.
type pauses struct {
	first   time.Duration // pause of a notification after its first failure; each further one doubles it
	longest time.Duration // longest pause of a notification
	between time.Duration // longest pause of a receiver, after failures of different notifications
	idle    time.Duration // time after which a courier looks for notifications without being woken
}

// defaultPauses are the pauses outside of tests.
var defaultPauses = pauses{first: 5 * time.Second, longest: 15 * time.Minute, between: time.Minute, idle: time.Minute}

// after returns the pause after a number of failures, at most limit. Its random half keeps the
// notifications of many processes apart.
func (p pauses) after(failures int, limit time.Duration) time.Duration {
	pause := limit
	if shift := failures - 1; shift < 20 && p.first<<shift < limit {
		pause = p.first << shift
	}
	return pause/2 + rand.N(pause/2+1)
}

// A courier sends the notifications of one receiver, one at a time.
type courier struct {
	*Notifier
	lease    fleetdb.Lease // lease of the term
	receiver *receiver     // receiver of the notifications
	wake     chan struct{} // has a value when notifications may be new
	failures int           // failures since the last delivery
}

// run sends until ctx ends, the lease is lost or the database is away.
func (c *courier) run(ctx context.Context) error {
	for {
		next, due, found, err := c.database.Notifications.Next(ctx, c.receiver.name)
		switch {
		case err != nil:
			return err
		case !found:
			due = c.pauses.idle
		case due <= 0:
			if err := c.attempt(ctx, next); err != nil {
				return err
			}
			if c.failures > 0 {
				if err := sleep.For(ctx, c.pauses.after(c.failures, c.pauses.between)); err != nil {
					return err
				}
			}
			continue
		}
		if err := c.rest(ctx, min(due, c.pauses.idle)); err != nil {
			return err
		}
	}
}

// rest returns after d, or earlier if notifications may be new.
func (c *courier) rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.wake:
	case <-timer.C:
	}
	return nil
}

// sendDue attempts each due notification once. It stops after the first failure.
func (c *courier) sendDue(ctx context.Context) error {
	for c.failures == 0 {
		next, due, found, err := c.database.Notifications.Next(ctx, c.receiver.name)
		if err != nil || !found || due > 0 {
			return err
		}
		if err := c.attempt(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

// attempt sends a notification once and records the result. If ctx ends meanwhile, attempt waits for the
// result for lastDelivery. A notification without a result stays pending.
func (c *courier) attempt(ctx context.Context, n fleetdb.Notification) error {
	var e Event
	err := json.Unmarshal(n.Doc, &e)
	if err == nil {
		delivering, end := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastDelivery, end) })
		err = c.receiver.deliver(delivering, e)
		stop()
		end()
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrites) // a delivery is recorded also at the end
	defer cancel()
	c.failures++
	failure := ""
	if err == nil {
		c.failures = 0
	} else {
		failure = fault.OneLine(err.Error())
	}
	state, serr := c.database.Notifications.Settle(ctx, c.lease, n, failure, c.pauses.after(n.Attempts+1, c.pauses.longest), c.receiver.giveUp)
	switch {
	case serr != nil:
		return serr
	case state == fleetdb.Abandoned:
		c.log.Error("notification not delivered in time", "receiver", n.Receiver, "event", e.ID, "kind", e.Kind, "plan", e.Plan, "vm", e.VM, "err", failure)
		return c.database.Audit.Add(ctx, fleetdb.Entry{User: "decamp", From: "local", Action: "notify " + n.Receiver, On: string(e.Kind) + " " + e.Plan, Err: "not delivered in time: " + failure})
	case failure != "":
		c.log.Warn("notification not delivered", "receiver", n.Receiver, "event", e.ID, "attempts", n.Attempts+1, "err", failure)
	default:
		c.log.Info("notification delivered", "receiver", n.Receiver, "event", e.ID, "kind", e.Kind, "plan", e.Plan, "vm", e.VM)
	}
	return nil
}
