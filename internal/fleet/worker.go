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
	"github.com/decamp/decamp/internal/roster"
)

// errLeaving ends what is driven when the node ends: it goes back to the queue.
var errLeaving = errors.New("this worker leaves")

// A worker drives what was granted to it. Follow tells it of changes; each VM has a drive.
type worker struct {
	*Node
	tenure tenure
	lease  roster.Lease // a copy: the tenure's is being renewed

	full atomic.Bool // the roster's disk, as people were told

	mu     sync.Mutex
	drives map[roster.Key]*drive
	orders map[string]roster.Order        // by plan
	over   map[roster.Key]int64           // the last epoch of each VM that was driven to its end here
	told   map[roster.Key]roster.Progress // since the last report
	group  *errgroup.Group                // of the drives
	ctx    context.Context                // of the drives: ends with what the lease permits
}

// noRoom tells people, who can do something about it, once, that the roster's disk is full.
func (w *worker) noRoom(err error) {
	full := fault.Is(err, fault.Full)
	if was := w.full.Swap(full); full && !was {
		w.Log.Warn("the fleet's database has no room: all waits", "err", err, "remedy", fault.HintOf(err))
	}
}

// work joins the fleet and drives until ctx ends.
func (n *Node) work(ctx context.Context) error {
	w := &worker{Node: n, over: map[roster.Key]int64{}}
	w.tenure.renew = func(ctx context.Context, l *roster.Lease) error {
		err := n.Roster.Leases.Renew(ctx, l, n.TTL)
		w.noRoom(err)
		return err
	}
	err := n.insist(ctx, func() error {
		return n.begin(&w.tenure, func() (err error) {
			w.tenure.lease, err = n.Roster.Workers.Join(ctx, n.Worker, n.TTL)
			return err
		})
	})
	if err != nil {
		return err
	}
	n.Log.Info("worker joined", "worker", n.Worker.Name)
	for {
		err := w.serve(ctx)
		if ctx.Err() != nil {
			return w.leave(ctx)
		}
		if !errors.Is(err, errOverdue) && !passes(err) {
			return namesake(n.Worker.Name, err)
		}
		n.Log.Warn("worker stopped what it drives: its lease was not renewed in time", "worker", n.Worker.Name)
		if err := w.rejoin(ctx); err != nil {
			return namesake(n.Worker.Name, err)
		}
		n.Log.Info("worker goes on", "worker", n.Worker.Name)
	}
}

// namesake makes of a lost name what people can act on.
func namesake(name string, err error) error {
	if !errors.Is(err, roster.ErrFenced) {
		return err
	}
	return fault.New(fault.Conflict, "another process joined as worker %s: %w", name, err).
		WithHint("give each worker a name of its own")
}

// rejoin renews the lease that was overdue. It is still ours unless another process of this
// name joined meanwhile.
func (w *worker) rejoin(ctx context.Context) error {
	err := w.insist(ctx, func() error {
		return w.begin(&w.tenure, func() error { return w.Roster.Leases.Renew(ctx, &w.tenure.lease, w.TTL) })
	})
	if ctx.Err() != nil {
		return w.leave(ctx)
	}
	return err
}

// leave gives the lease up: what is stranded here is taken over at once where it can be.
func (w *worker) leave(ctx context.Context) error {
	last, end := parting(ctx)
	defer end()
	if err := w.Roster.Workers.Leave(last, w.tenure.lease); err != nil {
		w.Log.Warn("worker could not say that it leaves", "worker", w.Worker.Name, "err", err)
	}
	return ctx.Err()
}

// serve drives for as long as the lease is kept. When it returns nothing is driven.
func (w *worker) serve(ctx context.Context) error {
	permit, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { end(errLeaving) })
	defer stop()
	w.lease = w.tenure.lease
	w.reset(permit)
	var g errgroup.Group
	for _, part := range []func(context.Context) error{w.keepLease, w.follow, w.report} {
		g.Go(func() error {
			err := part(permit)
			end(err)
			return err
		})
	}
	err := g.Wait()
	_ = w.group.Wait() // drives return nothing: what becomes of a VM is in its row
	w.flush(ctx)
	return err
}

func (w *worker) reset(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drives, w.orders = map[roster.Key]*drive{}, map[string]roster.Order{}
	w.told = map[roster.Key]roster.Progress{}
	w.group, w.ctx = &errgroup.Group{}, ctx
}

func (w *worker) keepLease(ctx context.Context) error { return w.keep(ctx, &w.tenure) }

// follow reads what changed and tells the drives. A roster that does not answer is asked
// again: how long that may go on is the lease's matter.
func (w *worker) follow(ctx context.Context) error {
	var p pace
	for rev := int64(0); ; {
		var c roster.Changes
		err := w.insist(ctx, func() (err error) {
			c, err = w.Roster.Feed.Changes(ctx, rev)
			return err
		})
		if err != nil {
			return err
		}
		if w.replaced(c.Workers) {
			return roster.ErrFenced
		}
		w.take(c)
		if c.Rev > rev {
			rev = c.Rev
			continue
		}
		if err := w.insist(ctx, func() error { return w.Roster.Feed.Await(ctx, rev) }); err != nil {
			return err
		}
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
}

// replaced reports whether another process joined under this name: what is granted to the name
// is its, from then on.
func (w *worker) replaced(workers []roster.Worker) bool {
	return slices.ContainsFunc(workers, func(o roster.Worker) bool { return o.Name == w.Worker.Name && o.Epoch > w.lease.Epoch })
}

// take gives changes to those that they concern, and begins what is new here.
func (w *worker) take(c roster.Changes) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range c.Plans {
		w.orders[p.Name] = p.Order
		for key, d := range w.drives {
			if key.Plan == p.Name {
				d.ordered(p.Order)
			}
		}
	}
	for _, v := range c.VMs {
		w.takeVM(v)
	}
}

func (w *worker) takeVM(v roster.VM) {
	if d := w.drives[v.Key]; d != nil {
		d.changed(v)
		return
	}
	if !w.mine(v) {
		return
	}
	d := newDrive(w, v, w.orders[v.Plan])
	w.drives[v.Key] = d
	w.group.Go(func() error {
		d.run(w.ctx)
		return nil
	})
}

// mine reports whether v is to be driven here and was not yet. w.mu is held.
func (w *worker) mine(v roster.VM) bool {
	return v.Worker == w.Worker.Name && (v.State == roster.Assigned || v.State == roster.Running) && v.Epoch > w.over[v.Key]
}

// report writes the progress of all drives once a second, in one transaction.
func (w *worker) report(ctx context.Context) error {
	for {
		if err := w.Sleep(ctx, reportEvery); err != nil {
			return err
		}
		w.flush(ctx)
	}
}

// flush reports what was told since. What the roster does not take is told again with the
// next, unless there is something newer.
func (w *worker) flush(ctx context.Context) {
	w.mu.Lock()
	told := w.told
	w.told = map[roster.Key]roster.Progress{}
	w.mu.Unlock()
	if len(told) == 0 {
		return
	}
	all := make([]roster.Progress, 0, len(told))
	for _, p := range told {
		all = append(all, p)
	}
	if err := w.Roster.Progress.Report(ctx, w.lease, all); err != nil {
		w.Log.Debug("progress not reported", "err", err)
		w.mu.Lock()
		maps.Copy(told, w.told)
		w.told = told
		w.mu.Unlock()
	}
}
