package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sleep"
)

const (
	answerInterval  = time.Second      // how often one looks for a worker's answer
	withdrawTimeout = 10 * time.Second // time limit after an interrupt
	maxMisses       = 60               // looks in a row that a server or a database may not answer
)

// AwaitRehearsal requests a rehearsal from the worker of a VM, calls asked, and waits for the result. If
// ctx ends, it withdraws the request.
func AwaitRehearsal(ctx context.Context, c Control, log *slog.Logger, vm fleetdb.VM, ask fleetdb.Rehearsal, asked func()) (done fleetdb.Rehearsed, err error) {
	if err := c.Rehearse(ctx, vm.Key, ask); err != nil {
		return done, err
	}
	defer func() {
		if !done.Ended.IsZero() {
			return
		}
		last, stop := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
		defer stop()
		if err := c.TakeBack(last, vm.Key, ask.ID); err != nil {
			log.Warn("rehearsal not withdrawn", "vm", vm.Key.String(), "err", err)
		}
	}()
	asked()
	for misses := 0; ; {
		done, err = rehearsalOf(ctx, c, vm, ask.ID)
		switch {
		case err == nil && done.Failure != nil:
			return done, fault.New(fault.KindNamed(done.Failure.Kind), "%s", done.Failure.Text).WithHint("%s", done.Failure.Hint)
		case err == nil && !done.Ended.IsZero():
			return done, nil
		case err == nil:
			misses = 0
		case !fault.Is(err, fault.Unreachable) || misses == maxMisses:
			return done, err
		default:
			misses++
		}
		if err := sleep.For(ctx, answerInterval); err != nil {
			return done, err
		}
	}
}

// rehearsalOf returns the rehearsal with an ID. A request that is withdrawn without a result is
// fault.Canceled.
func rehearsalOf(ctx context.Context, c Control, vm fleetdb.VM, id string) (r fleetdb.Rehearsed, err error) {
	all, err := c.Rehearsals(ctx, vm.Key)
	if err != nil {
		return r, err
	}
	for _, r := range all {
		if r.ID == id {
			return r, nil
		}
	}
	return r, fault.New(fault.Canceled, "no worker executes VM %s any more, or the request was withdrawn", vm.Name).
		WithHint("see decamp status %s; rehearse it again when it continues", fault.Quote(vm.Plan))
}
