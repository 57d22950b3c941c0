package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

// RequestSlot implements Driver. While the VM holds a slot, a further request returns at once, and the slot is
// released after the last of them: the runs of a VM with several destinations are one transfer.
func (d *driver) RequestSlot(ctx context.Context, stage fleetdb.TransferKind, expected time.Duration) (func(), error) {
	select {
	case <-d.slotToken:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { d.slotToken <- struct{}{} }()
	if d.slots == 0 && !d.granted {
		if err := d.requestSlot(ctx, stage, expected); err != nil {
			return nil, err
		}
	}
	d.granted = false
	d.slots++
	return sync.OnceFunc(d.endSlot), nil
}

// requestSlot requests a slot and waits for it. A row with a slot may be older than the request, so
// requestSlot waits for a row that is not older than one that was read after the request.
func (d *driver) requestSlot(ctx context.Context, stage fleetdb.TransferKind, expected time.Duration) error {
	err := d.w.retryWhileAway(ctx, func() error { return d.w.Database.Claims.RequestTransfer(ctx, d.claim, stage, expected) })
	if err != nil {
		return err
	}
	asked, err := d.readVM(ctx)
	if err != nil {
		return err
	}
	for row := asked; !row.Granted || row.Rev < asked.Rev; {
		var news <-chan struct{}
		if row, _, news = d.currentState(); row.Rev >= asked.Rev && row.Granted {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// endSlot ends one use of the slot, and releases the slot after the last one.
func (d *driver) endSlot() {
	<-d.slotToken
	defer func() { d.slotToken <- struct{}{} }()
	if d.slots--; d.slots == 0 {
		d.releaseSlot()
	}
}

// releaseUnused releases the slot of the grant if no request has used it yet.
func (d *driver) releaseUnused() {
	if d.try.Err() != nil {
		return
	}
	select {
	case <-d.slotToken:
	default: // a transfer is using it
		return
	}
	defer func() { d.slotToken <- struct{}{} }()
	if d.granted {
		d.granted = false
		d.releaseSlot()
	}
}

// releaseSlot releases the slot in the database. If the claim is lost there is nothing to release: the
// next worker gets a new grant.
func (d *driver) releaseSlot() {
	if err := d.w.retryWhileAway(d.ctx, func() error { return d.w.Database.Claims.EndTransfer(d.ctx, d.claim) }); err != nil {
		d.log.Debug("transfer slot not released", "err", err)
	}
}
