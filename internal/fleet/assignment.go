package fleet

import (
	"context"
	"errors"
	"sync"

	"github.com/decamp/decamp/internal/fleetdb"
)

// An assignment is one VM in this worker, from its grant until it is over or another worker's. The goroutine of run
// makes one attempt after the other; the worker's follow passes it what changes.
type assignment struct {
	w *worker

	mu        sync.Mutex
	row       fleetdb.VM
	planOrder fleetdb.Order
	news      chan struct{} // closed and replaced when row or planOrder changes
	stop      context.CancelCauseFunc
	epoch     int64 // epoch of the attempt under way
}

// Why an attempt is stopped.
var (
	errTaken = errors.New("another worker has the VM")
	errUndo  = errors.New("the VM must be undone")
)

func newAssignment(w *worker, v fleetdb.VM, plan fleetdb.Order) *assignment {
	return &assignment{w: w, row: v, planOrder: plan, news: make(chan struct{}), stop: func(error) {}}
}

func (a *assignment) setPlanOrder(o fleetdb.Order) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.planOrder = o
	a.notify()
}

func (a *assignment) setRow(v fleetdb.VM) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if v.Rev <= a.row.Rev {
		return
	}
	a.row = v
	a.notify()
}

// notify wakes those that wait for news, and stops the attempt if it is not to continue. a.mu must be held.
func (a *assignment) notify() {
	close(a.news)
	a.news = make(chan struct{})
	switch {
	case !a.isOwned():
		a.stop(errTaken)
	case a.effectiveOrder().Undoes():
		a.stop(errUndo)
	}
}

// isOwned reports whether the row still belongs to the attempt. a.mu must be held.
func (a *assignment) isOwned() bool {
	v := a.row
	return v.Worker == a.w.Worker.Name && v.Epoch == a.epoch && (v.State == fleetdb.Assigned || v.State == fleetdb.Running)
}

// effectiveOrder returns the order that counts for the VM. a.mu must be held.
func (a *assignment) effectiveOrder() fleetdb.Order { return a.row.Order.Under(a.planOrder) }

// currentState returns the row and the order as they are now, and a channel that is closed when they change.
func (a *assignment) currentState() (fleetdb.VM, fleetdb.Order, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.row, a.effectiveOrder(), a.news
}

// run drives the VM until it is not this worker's any more: usually with one attempt, with another one if the VM was granted
// to the same worker again in the meantime.
func (a *assignment) run(ctx context.Context) {
	for a.needsAttempt(ctx) {
		one, try := a.startAttempt(ctx)
		over := one.run(ctx, try)
		one.stop(nil)
		if over {
			a.recordEnd(one.claim.Epoch)
		} else if a.w.Sleep(ctx, a.w.TTL) != nil {
			return
		}
	}
}

// needsAttempt reports whether another attempt is required. If not, the worker forgets the assignment.
func (a *assignment) needsAttempt(ctx context.Context) bool {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	row, _, _ := a.currentState()
	if ctx.Err() == nil && a.w.isNew(row) {
		return true
	}
	delete(a.w.assignments, row.Key)
	return false
}

// startAttempt returns an attempt of the row as it is now, and a context that ends when the attempt has to stop.
func (a *assignment) startAttempt(ctx context.Context) (*attempt, context.Context) {
	try, stop := context.WithCancelCause(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop, a.epoch = stop, a.row.Epoch
	return &attempt{assignment: a, claim: fleetdb.Claim{Key: a.row.Key, Worker: a.row.Worker, Epoch: a.row.Epoch}}, try
}

func (a *assignment) recordEnd(epoch int64) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	key := a.row.Key
	a.w.over[key] = max(a.w.over[key], epoch)
}
