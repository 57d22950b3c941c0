package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/roster"
)

// errOverdue ends what a lease permits that could not be renewed in time.
var errOverdue = fault.New(fault.Unreachable, "the lease could not be renewed in time")

// A tenure is a lease that is kept by renewing it.
type tenure struct {
	lease roster.Lease
	renew func(context.Context, *roster.Lease) error
	sure  time.Time // until when it is ours, by our own clock, and with what it takes to stop
}

// renewals is how often a lease is renewed within its length.
const renewals = 3

// margin is what of a lease's length is left for those that it permits to stop.
const margin = 5

// begin takes the lease by take, which may be a renewal. What counts is the moment before it
// was asked for.
func (n *Node) begin(t *tenure, take func() error) error {
	asked := n.Now()
	if err := take(); err != nil {
		return err
	}
	t.sure = asked.Add(n.TTL - n.TTL/margin)
	return nil
}

// keep renews the lease until ctx ends, until it is another's (roster.ErrFenced) or until it
// was not renewed in time (errOverdue). A clock that jumped forward makes it overdue: nobody
// knows how long this process was suspended.
func (n *Node) keep(ctx context.Context, t *tenure) error {
	for pause := n.TTL / renewals; ; {
		if err := n.Sleep(ctx, pause); err != nil {
			return err
		}
		if n.over(t.sure) { // this process, or its machine, stood still
			return errOverdue
		}
		sure, end := n.until(ctx, t.sure)
		err := n.begin(t, func() error { return t.renew(sure, &t.lease) })
		end()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, roster.ErrFenced):
			return err
		case err == nil:
			pause = n.TTL / renewals
		default:
			pause = min(n.TTL/(2*renewals*renewals), t.sure.Sub(n.Now()))
		}
	}
}

// over reports whether t has passed by the monotonic clock or by the wall's: the one stands
// still while a machine is suspended, the other may be set.
func (n *Node) over(t time.Time) bool {
	now := n.Now()
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}
