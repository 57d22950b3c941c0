package fleet

import (
	"context"
	"errors"
	"sync"

	"github.com/decamp/decamp/internal/roster"
)

// A drive is one VM in this worker, from its grant until it is over or another's.
type drive struct {
	w *worker

	mu    sync.Mutex
	row   roster.VM
	order roster.Order  // of its plan
	news  chan struct{} // closed and made anew when row or order changes
	stop  context.CancelCauseFunc
	epoch int64 // that is being driven
}

// Why an attempt is stopped.
var (
	errTaken = errors.New("the VM is another's now")
	errUndo  = errors.New("somebody said cancel or rollback")
)

func newDrive(w *worker, v roster.VM, o roster.Order) *drive {
	return &drive{w: w, row: v, order: o, news: make(chan struct{}), stop: func(error) {}}
}

// ordered and changed are told by follow.
func (d *drive) ordered(o roster.Order) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.order = o
	d.notice()
}

func (d *drive) changed(v roster.VM) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v.Rev <= d.row.Rev {
		return
	}
	d.row = v
	d.notice()
}

// notice wakes those that wait for news, and stops the attempt if it is not to go on.
func (d *drive) notice() {
	close(d.news)
	d.news = make(chan struct{})
	switch {
	case !d.owned():
		d.stop(errTaken)
	case undoes(d.orders()):
		d.stop(errUndo)
	}
}

// owned reports whether the row still is what is being driven.
func (d *drive) owned() bool {
	v := d.row
	return v.Worker == d.w.Worker.Name && v.Epoch == d.epoch && (v.State == roster.Assigned || v.State == roster.Running)
}

// orders is what holds for the VM.
func (d *drive) orders() roster.Order { return d.row.Order.Under(d.order) }

// undoes reports whether an order means that nothing is to be left of the VM.
func undoes(o roster.Order) bool {
	return o == roster.Cancel || o == roster.Rollback || o == roster.Withdraw
}

// look returns the row and the order as they are now, and what is closed when they change.
func (d *drive) look() (roster.VM, roster.Order, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.row, d.orders(), d.news
}

// run drives the VM until it is not this worker's any more: usually once, again where it was
// granted to the same worker anew meanwhile.
func (d *drive) run(ctx context.Context) {
	for d.next(ctx) {
		a, try := d.begin(ctx)
		over := a.run(ctx, try)
		a.stop(nil)
		if over {
			d.ended(a.claim.Epoch)
		} else if d.w.Sleep(ctx, d.w.TTL) != nil {
			return
		}
	}
}

// next reports whether there is something to drive; if not, the drive is forgotten.
func (d *drive) next(ctx context.Context) bool {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	row, _, _ := d.look()
	if ctx.Err() == nil && d.w.mine(row) {
		return true
	}
	delete(d.w.drives, row.Key)
	return false
}

// begin makes an attempt of the row as it is now, and the context that ends when it is to
// stop.
func (d *drive) begin(ctx context.Context) (*attempt, context.Context) {
	try, stop := context.WithCancelCause(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stop, d.epoch = stop, d.row.Epoch
	return &attempt{drive: d, claim: roster.Claim{Key: d.row.Key, Worker: d.row.Worker, Epoch: d.row.Epoch}}, try
}

func (d *drive) ended(epoch int64) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	key := d.row.Key
	d.w.over[key] = max(d.w.over[key], epoch)
}
