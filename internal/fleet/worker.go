package fleet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// errLeaving is the cause that stops the attempts when the node ends: their VMs are queued.
var errLeaving = errors.New("this worker ends")

// A worker executes the VMs that are granted to it. followChanges passes changes to the assignments,
// one for each VM.
type worker struct {
	Config
	held  heldLease     // lease of the worker; only keepHeldLease uses it while VMs are executed
	lease fleetdb.Lease // copy of held's lease for fenced writes, because held is renewed concurrently

	full atomic.Bool // the database's disk is full, and that is logged

	mu          sync.Mutex                       // guards the fields below
	assignments map[fleetdb.Key]*assignment      // VMs that this worker executes
	planOrders  map[string]fleetdb.Command       // commands for plans, by plan
	over        map[fleetdb.Key]int64            // last epoch of each VM whose claim has ended here
	unreported  map[fleetdb.Key]fleetdb.Progress // progress since the last report
	read        map[string]int64                 // bytes read from sources since the last report, by plan
	group       *errgroup.Group                  // goroutines of the assignments
	ctx         context.Context                  // context of the assignments: ends when the lease expires
}

// logFull logs, once, that the database's disk is full: an operator can free space.
func (w *worker) logFull(err error) {
	full := fault.Is(err, fault.Full)
	if was := w.full.Swap(full); full && !was {
		w.Log.Warn("fleet database full, all work waits", "err", err, "remedy", fault.HintOf(err))
	}
}

// runWorker joins the fleet as a worker and executes VMs until ctx ends.
func runWorker(ctx context.Context, c Config) error {
	w := &worker{Config: c, over: map[fleetdb.Key]int64{}}
	name := c.Worker.Name
	w.held.renew = func(ctx context.Context, l *fleetdb.Lease) error {
		err := w.Database.Leases.Renew(ctx, l, w.TTL)
		w.logFull(err)
		return err
	}
	err := w.retryWhileAway(ctx, func() error {
		return w.acquireLease(&w.held, func() (err error) {
			w.held.lease, err = w.Database.Workers.Join(ctx, w.Worker, w.TTL)
			return err
		})
	})
	if err != nil {
		return err
	}
	w.Log.Info("worker joined", "worker", name)
	for {
		err := w.driveVMs(ctx)
		if ctx.Err() != nil {
			return w.freeLease(ctx)
		}
		if !errors.Is(err, errOverdue) && !isTransient(err) {
			return explainFenced(name, err)
		}
		w.Log.Warn("worker stopped its VMs: its lease was not renewed in time", "worker", name)
		if err := w.renewOverdueLease(ctx); err != nil {
			return explainFenced(name, err)
		}
		w.Log.Info("worker continues", "worker", name)
	}
}

// explainFenced returns fault.Conflict with a remedy if another process joined with this worker's name;
// other errors unchanged.
func explainFenced(name string, err error) error {
	if !errors.Is(err, fleetdb.ErrFenced) {
		return err
	}
	return fault.New(fault.Conflict, "another process joined as worker %s: %w", name, err).
		WithHint("give each worker a unique name")
}

// renewOverdueLease renews the lease that was overdue. It is still ours unless another process joined
// with this name.
func (w *worker) renewOverdueLease(ctx context.Context) error {
	err := w.retryWhileAway(ctx, func() error {
		return w.acquireLease(&w.held, func() error { return w.Database.Leases.Renew(ctx, &w.held.lease, w.TTL) })
	})
	if ctx.Err() != nil {
		return w.freeLease(ctx)
	}
	return err
}

// freeLease frees the lease, so that other workers can take over its VMs at once. It returns ctx's
// error.
func (w *worker) freeLease(ctx context.Context) error {
	last, end := lastWritesContext(ctx)
	defer end()
	if err := w.Database.Workers.Leave(last, w.held.lease); err != nil {
		w.Log.Warn("end of the worker not recorded", "worker", w.Worker.Name, "err", err)
	}
	return ctx.Err()
}

// driveVMs executes VMs while the lease is valid. When it returns, no VM is executed.
func (w *worker) driveVMs(ctx context.Context) error {
	permit, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { end(errLeaving) })
	defer stop()
	w.lease = w.held.lease
	w.resetState(permit)
	var parts sync.WaitGroup
	for _, part := range []func(context.Context) error{w.keepHeldLease, w.followChanges, w.reportLoop} {
		parts.Go(func() { end(part(permit)) }) // the first error is the cause
	}
	parts.Wait()
	_ = w.group.Wait() // assignments return no errors: the result is in the VM's row
	last, stopLast := lastWritesContext(ctx)
	defer stopLast()
	w.flushProgress(last)
	return context.Cause(permit)
}

// resetState forgets all assignments and plans. ctx is the context of the assignments to come.
func (w *worker) resetState(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.assignments, w.planOrders = map[fleetdb.Key]*assignment{}, map[string]fleetdb.Command{}
	w.unreported = map[fleetdb.Key]fleetdb.Progress{}
	if w.read == nil { // bytes that could not be reported under an earlier lease still count
		w.read = map[string]int64{}
	}
	w.group, w.ctx = &errgroup.Group{}, ctx
}

// keepHeldLease renews the worker's lease until it is lost or ctx ends.
func (w *worker) keepHeldLease(ctx context.Context) error { return w.keepLease(ctx, &w.held) }

// followChanges reads changes and passes them to the assignments. While the database is unreachable it
// retries until the lease ends.
func (w *worker) followChanges(ctx context.Context) error {
	var t throttle
	for rev := int64(0); ; {
		var c fleetdb.Changes
		err := w.retryWhileAway(ctx, func() (err error) {
			c, err = w.Database.Feed.Changes(ctx, rev)
			return err
		})
		if err != nil {
			return err
		}
		if w.isReplaced(c.Workers) {
			return fleetdb.ErrFenced
		}
		w.applyChanges(c)
		if c.Rev > rev {
			rev = c.Rev
			continue
		}
		if err := w.retryWhileAway(ctx, func() error { return w.Database.Feed.WaitForChange(ctx, rev) }); err != nil {
			return err
		}
		if err := t.wait(ctx); err != nil {
			return err
		}
	}
}

// isReplaced reports whether another process joined with this name: it gets all later grants for the
// name.
func (w *worker) isReplaced(workers []fleetdb.Worker) bool {
	return slices.ContainsFunc(workers, func(o fleetdb.Worker) bool { return o.Name == w.Worker.Name && o.Epoch > w.lease.Epoch })
}

// applyChanges passes changes to the assignments that they concern, and starts new ones.
func (w *worker) applyChanges(c fleetdb.Changes) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range c.Dropped {
		w.forgetPlan(name)
	}
	for _, p := range c.Plans {
		w.planOrders[p.Name] = p.Command
		for key, a := range w.assignments {
			if key.Plan == p.Name {
				a.setPlanOrder(p.Command)
			}
		}
	}
	for _, v := range c.VMs {
		w.applyVM(v)
	}
}

// forgetPlan forgets the VMs of a plan that was dropped. A plan that is submitted under its name again has the
// same VMs, whose epochs begin from 1 again. w.mu must be held.
func (w *worker) forgetPlan(name string) {
	delete(w.planOrders, name)
	maps.DeleteFunc(w.over, func(key fleetdb.Key, _ int64) bool { return key.Plan == name })
	for key, a := range w.assignments {
		if key.Plan == name {
			a.drop()
		}
	}
}

// applyVM passes the row of one VM to its assignment. It starts an assignment for a VM that is new.
// w.mu must be held.
func (w *worker) applyVM(v fleetdb.VM) {
	if a := w.assignments[v.Key]; a != nil {
		a.setRow(v)
		return
	}
	if !w.isNew(v) {
		return
	}
	a := newAssignment(w, v, w.planOrders[v.Plan])
	w.assignments[v.Key] = a
	w.group.Go(func() error {
		a.run(w.ctx)
		return nil
	})
}

// isNew reports whether v is granted to this worker and has not been executed with this epoch. w.mu
// must be held.
func (w *worker) isNew(v fleetdb.VM) bool {
	return v.Worker == w.Worker.Name && (v.State == fleetdb.Assigned || v.State == fleetdb.Running) && v.Epoch > w.over[v.Key]
}

// reportLoop writes the progress of all assignments once per second, in one transaction.
func (w *worker) reportLoop(ctx context.Context) error {
	for {
		if err := w.Sleep(ctx, reportEvery); err != nil {
			return err
		}
		w.flushProgress(ctx)
	}
}

// flushProgress writes the progress since the last report. Progress that cannot be written is written
// with the next report, unless there is newer progress.
func (w *worker) flushProgress(ctx context.Context) {
	w.mu.Lock()
	unreported, read := w.unreported, w.read
	w.unreported, w.read = map[fleetdb.Key]fleetdb.Progress{}, map[string]int64{}
	w.mu.Unlock()
	if len(unreported)+len(read) == 0 {
		return
	}
	all := slices.Collect(maps.Values(unreported))
	if err := w.Database.Progress.Report(ctx, w.lease, all, read); err != nil {
		w.Log.Debug("progress not reported", "err", err)
		w.mu.Lock()
		maps.Copy(unreported, w.unreported)
		w.unreported = unreported
		for plan, n := range read {
			w.read[plan] += n
		}
		w.mu.Unlock()
	}
}
