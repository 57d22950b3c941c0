package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// errOverdue ends what a lease permits when the lease was not renewed in time.
var errOverdue = fault.New(fault.Unreachable, "the lease could not be renewed in time")

// A heldLease is a lease that this process renews.
type heldLease struct {
	lease     fleetdb.Lease                               // lease as of the last renewal
	renew     func(context.Context, *fleetdb.Lease) error // extends the lease in the database
	safeUntil time.Time                                   // end of the lease by the local clock, minus the time to stop the permitted work
}

const (
	// renewals is how often a lease is renewed within its length.
	renewals = 3

	// stopShare is the part of a lease's length, as a divisor, that remains to stop the permitted work.
	stopShare = 5
)

// acquireLease acquires or renews a lease by calling acquire. The length of the lease counts from the
// time before that call.
func (c Config) acquireLease(l *heldLease, acquire func() error) error {
	asked := c.Now()
	if err := acquire(); err != nil {
		return err
	}
	l.safeUntil = asked.Add(c.TTL - c.TTL/stopShare)
	return nil
}

// keepLease renews the lease until ctx ends, until another process has it (fleetdb.ErrFenced) or until
// it was not renewed in time (errOverdue). A clock that jumps forward makes it overdue: the process may
// have been suspended.
func (c Config) keepLease(ctx context.Context, l *heldLease) error {
	for pause := c.TTL / renewals; ; {
		if err := c.Sleep(ctx, pause); err != nil {
			return err
		}
		if c.isOver(l.safeUntil) { // this process or its machine was suspended
			return errOverdue
		}
		inTime, end := c.withDeadline(ctx, l.safeUntil)
		err := c.acquireLease(l, func() error { return l.renew(inTime, &l.lease) })
		end()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fleetdb.ErrFenced):
			return err
		case err == nil:
			pause = c.TTL / renewals
		default:
			pause = min(c.TTL/(2*renewals*renewals), l.safeUntil.Sub(c.Now()))
		}
	}
}

// isOver reports whether t has passed by the monotonic clock or by the wall clock. The monotonic clock
// stops while a machine is suspended, and the wall clock can be set.
func (c Config) isOver(t time.Time) bool {
	now := c.Now()
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}
