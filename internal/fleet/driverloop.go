package fleet

import (
	"context"

	"github.com/decamp/decamp/internal/fleetdb"
)

// wakeExchange makes exchangeLoop check for work. It does not block.
func (d *driver) wakeExchange() {
	select {
	case d.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// exchangeLoop writes steps and results of rehearsals to the fleet database, and passes commands and
// rehearsals to the Mover, until try ends.
func (d *driver) exchangeLoop(try context.Context) {
	defer close(d.exchangeDone)
	var step, waits string
	for {
		row, order, news := d.currentState()
		d.passOrder(order)
		d.passRehearsal(row.Rehearse)
		if d.writeRehearsed(try) != nil {
			return
		}
		d.mu.Lock()
		newStep := d.step != step || d.waits != waits
		step, waits = d.step, d.waits
		d.mu.Unlock()
		if newStep && d.w.retryWhileAway(try, func() error { return d.w.Database.Claims.SetStep(try, d.claim, step, waits) }) != nil {
			return // the claim is lost, or try has ended
		}
		if waits != "" {
			d.releaseUnused()
		}
		select {
		case <-try.Done():
			return
		case <-news:
		case <-d.wake:
		}
	}
}

// passOrder passes a command to the Mover after the run has begun, which its first step shows. Until
// then the Move has the command that it began with. A cold run receives no commands: a command decides
// whether it may begin, or ends it.
func (d *driver) passOrder(o fleetdb.Command) {
	d.mu.Lock()
	passed, running := d.orderPassed, d.step != ""
	d.mu.Unlock()
	if !d.vm.Warm || !running || o == passed || o == fleetdb.Retry {
		return
	}
	if err := d.w.Mover.SendCommand(d.vm, o); err != nil {
		d.log.Debug("command not passed on yet", "err", err)
		return
	}
	d.mu.Lock()
	d.orderPassed = o
	d.mu.Unlock()
}

// passRehearsal passes the requested rehearsal, nil for none, to the Mover after the run has begun, and
// withdraws the one that is not requested any more.
func (d *driver) passRehearsal(ask *fleetdb.Rehearsal) {
	d.mu.Lock()
	was, running := d.rehearsal, d.step != ""
	d.mu.Unlock()
	var now string
	if ask != nil {
		now = ask.ID
	}
	if !d.vm.Warm || !running || now == was {
		return
	}
	if was != "" {
		if err := d.w.Mover.TakeBack(d.vm, was); err != nil {
			d.log.Warn("rehearsal not withdrawn", "err", err)
		}
	}
	if ask != nil {
		if err := d.w.Mover.Rehearse(d.vm, *ask); err != nil {
			d.Rehearsed(fleetdb.Rehearsed{Rehearsal: *ask, Failure: failureOf(err)})
		}
	}
	d.mu.Lock()
	d.rehearsal = now
	d.mu.Unlock()
}

// writeRehearsed writes the results of rehearsals. It returns an error if the claim is lost or try has
// ended.
func (d *driver) writeRehearsed(try context.Context) error {
	d.mu.Lock()
	all := d.rehearsed
	d.rehearsed = nil
	d.mu.Unlock()
	for _, done := range all {
		if err := d.w.retryWhileAway(try, func() error { return d.w.Database.Rehearsals.Answer(try, d.claim, done) }); err != nil {
			return err
		}
	}
	return nil
}
