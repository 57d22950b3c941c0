package fleet

import (
	"context"
	"errors"
	"sync"

	"github.com/decamp/decamp/internal/fleetdb"
)

// An assignment is one VM in this worker, from its grant until the VM has ended or belongs to another
// worker. The goroutine of run makes one attempt after the other; the worker passes changes to it.
type assignment struct {
	w *worker // worker that executes the VM

	mu        sync.Mutex      // guards the fields below. worker.mu is locked before it
	row       fleetdb.VM      // newest row of the VM
	planOrder fleetdb.Command // command for all VMs of the plan
	news      chan struct{}   // closed and replaced when row or planOrder changes
	// stop ends the context of the attempt with a cause; it does nothing before the first attempt
	stop    context.CancelCauseFunc
	epoch   int64 // epoch of the current attempt; 0 before the first one
	dropped bool  // the plan was dropped since the current attempt began
}

// Why an attempt is stopped.
var (
	errTaken = errors.New("another worker executes the VM") // another worker has the VM, or the claim has ended
	errUndo  = errors.New("the VM must be undone")          // a command removes the results of the VM
)

// newAssignment returns the assignment of v before its first attempt. plan is the command for its plan.
func newAssignment(w *worker, v fleetdb.VM, plan fleetdb.Command) *assignment {
	return &assignment{w: w, row: v, planOrder: plan, news: make(chan struct{}), stop: func(error) {}}
}

// setPlanOrder sets the command for all VMs of the plan.
func (a *assignment) setPlanOrder(o fleetdb.Command) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.planOrder = o
	a.notify()
}

// setRow sets the row of the VM, unless it is older than the current one.
func (a *assignment) setRow(v fleetdb.VM) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if v.Rev <= a.row.Rev {
		return
	}
	a.row = v
	a.notify()
}

// drop records that the plan of the VM was dropped: the row does not exist any more.
func (a *assignment) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.row.State, a.dropped = fleetdb.Canceled, true
	a.notify()
}

// notify wakes the goroutines that wait for news, and stops the attempt if it must not continue. a.mu
// must be held.
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

// isOwned reports whether the row still has the claim of the attempt. a.mu must be held.
func (a *assignment) isOwned() bool {
	v := a.row
	return v.Worker == a.w.Worker.Name && v.Epoch == a.epoch && (v.State == fleetdb.Assigned || v.State == fleetdb.Running)
}

// effectiveOrder returns the command for the VM, by its row and its plan. a.mu must be held.
func (a *assignment) effectiveOrder() fleetdb.Command { return a.row.Command.Within(a.planOrder) }

// currentState returns the row, the effective command, and a channel that is closed when one of them
// changes.
func (a *assignment) currentState() (fleetdb.VM, fleetdb.Command, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.row, a.effectiveOrder(), a.news
}

// run executes the VM until it does not belong to this worker any more. That usually takes one attempt;
// more if the VM was granted to the same worker again in the meantime.
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

// startAttempt returns an attempt for the current row, and a context that ends when the attempt must
// stop.
func (a *assignment) startAttempt(ctx context.Context) (*attempt, context.Context) {
	try, stop := context.WithCancelCause(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop, a.epoch, a.dropped = stop, a.row.Epoch, false
	return &attempt{assignment: a, claim: fleetdb.Claim{Key: a.row.Key, Worker: a.row.Worker, Epoch: a.row.Epoch}}, try
}

// recordEnd records that the claim with this epoch has ended in this worker, so that no row with it
// begins another attempt. The epochs of a dropped plan have ended with it.
func (a *assignment) recordEnd(epoch int64) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if key := a.row.Key; !a.dropped {
		a.w.over[key] = max(a.w.over[key], epoch)
	}
}
