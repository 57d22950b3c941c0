package fleet

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/sched"
)

// A desk is what the scheduler knows for one time in office. One goroutine owns it; what
// runs beside it, listings and hooks, hands its results in through calls.
type desk struct {
	*Node
	lease roster.Lease
	group *errgroup.Group
	calls chan func() // to be done by the owner

	sched   *sched.Scheduler
	pace    pace
	rev     int64                    // up to which the roster is known
	skew    time.Duration            // of the database's clock to ours
	plans   map[string]*book         // that have not ended
	vms     map[roster.Key]roster.VM // that are not over
	workers map[string]roster.Worker
	roll    []string // of workers, in order
	limits  map[string]int64

	placed   map[roster.Key]placement // of those that wait to be given to a worker
	queues   map[string]int           // how many of them each worker has
	homeless map[roster.Key]string    // why a VM is not even in line
	errands  map[roster.Key]bool      // to be undone: they need a worker and no turn
	missed   map[roster.Key]bool      // that the roster did not grant: looked at again later
	known    map[string]int64         // capacities that the sched.Scheduler has
	refusals map[string]Refusal       // by source
	hosts    map[string]*health       // that failed lately
	unsaid   map[string]bool          // hosts of which the roster does not know what is known here

	loaded    bool      // the roster was read once
	ticked    time.Time // last
	denied    bool      // somebody was: the refusals are to be read
	grace     time.Duration
	reapAfter time.Time // grace after it began
	boardAt   time.Time
}

func newDesk(n *Node, t *tenure, g *errgroup.Group) *desk {
	return &desk{
		Node: n, lease: t.lease, group: g, calls: make(chan func()), sched: sched.New(sched.Options{}),
		plans: map[string]*book{}, vms: map[roster.Key]roster.VM{}, workers: map[string]roster.Worker{},
		limits: map[string]int64{}, placed: map[roster.Key]placement{}, queues: map[string]int{},
		homeless: map[roster.Key]string{}, errands: map[roster.Key]bool{}, missed: map[roster.Key]bool{}, known: map[string]int64{},
		refusals: map[string]Refusal{}, hosts: map[string]*health{}, unsaid: map[string]bool{},
	}
}

// run schedules until something fails or ctx ends.
func (d *desk) run(ctx context.Context) error {
	if err := d.load(ctx); err != nil {
		return err
	}
	for {
		if err := d.catchUp(ctx); err != nil {
			return err
		}
		if now := d.now(); now.Before(d.ticked) || !now.Before(d.due()) { // our clock was put back, or it is time
			if err := d.tick(ctx); err != nil {
				return err
			}
		}
		if err := d.grant(ctx); err != nil {
			return err
		}
		if err := d.record(ctx); err != nil {
			return err
		}
		d.lead(ctx)
		if err := d.wait(ctx, d.wake()); err != nil {
			return err
		}
	}
}

// now is the time by the database's clock, as far as ours kept pace since the last look. The
// monotonic reading is left out: it knows nothing of that.
func (d *desk) now() time.Time { return d.Now().Round(0).Add(d.skew) }

// load reads the roster as it is. Holders are restored and the others come into line in their
// order; nothing is decided before both are done.
func (d *desk) load(ctx context.Context) error {
	if err := errors.Join(d.look(ctx), d.recall(ctx)); err != nil {
		return err
	}
	d.reapAfter = d.now().Add(d.grace) // the roster may have been away for all: let them come back
	if err := d.catchUp(ctx); err != nil {
		return err
	}
	d.loaded = true
	for _, v := range d.inOrder() {
		d.settle(v)
	}
	return nil
}

// look reads what is not among the changes: who lives, what time it is, which logins were
// refused.
func (d *desk) look(ctx context.Context) error {
	workers, err := d.Roster.Workers.List(ctx)
	if err != nil {
		return err
	}
	now, err := d.Roster.Now(ctx)
	if err != nil {
		return err
	}
	d.skew = now.Sub(d.Now().Round(0))
	d.setWorkers(workers)
	return d.readRefusals(ctx)
}

// catchUp takes in what changed, to the last.
func (d *desk) catchUp(ctx context.Context) error {
	for {
		c, err := d.Roster.Feed.Changes(ctx, d.rev)
		if err != nil {
			return err
		}
		if err := d.takeIn(ctx, c); err != nil {
			return err
		}
		if c.Rev <= d.rev {
			break
		}
		d.rev = c.Rev
	}
	if !d.denied {
		return nil
	}
	return d.readRefusals(ctx)
}

func (d *desk) takeIn(ctx context.Context, c roster.Changes) error {
	for _, name := range c.Dropped {
		delete(d.plans, name)
	}
	for _, l := range c.Limits {
		d.setLimit(l)
	}
	d.setWorkers(c.Workers)
	for _, p := range c.Plans {
		if err := d.takePlan(ctx, p); err != nil {
			return err
		}
	}
	for _, v := range c.VMs {
		d.put(v)
	}
	return nil
}

// inOrder returns the VMs as they were found: that is the order in which they came into line
// before.
func (d *desk) inOrder() []roster.VM {
	return slices.SortedFunc(maps.Values(d.vms), func(a, b roster.VM) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), strings.Compare(a.Plan, b.Plan))
	})
}

// tick is what is looked at now and then although nothing changed.
func (d *desk) tick(ctx context.Context) error {
	if err := d.look(ctx); err != nil {
		return err
	}
	d.ticked = d.now()
	if err := d.reap(ctx); err != nil {
		return err
	}
	for key := range d.missed {
		delete(d.missed, key)
		if v, there := d.vms[key]; there {
			d.settle(v)
		}
	}
	d.heal()
	d.rebalance()
	if err := d.updateEstimates(ctx); err != nil {
		return err
	}
	return d.showBoard(ctx)
}

// updateEstimates sets when the transfers under way are likely to end, by their progress. A round of a
// warm VM keeps its estimate: its progress counts the whole disks.
func (d *desk) updateEstimates(ctx context.Context) error {
	all, err := d.Roster.Progress.List(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range all {
		v, known := d.vms[p.Key]
		if !known || !v.Holds || v.State != roster.Running || p.Round > 0 || p.Rate <= 0 {
			continue
		}
		left := min(leftToMove(v, p), max(p.Total-p.Done, 0))
		d.sched.Expect(runOf(p.Key), p.At.Add(time.Duration(float64(left)/float64(p.Rate)*float64(time.Second))))
	}
	return nil
}

// due is when the next tick is: three times in the length of a lease, when a worker's lease that was
// not renewed since ends or may first be acted upon, so that who is gone is noticed at once, and
// whenever a rest or a back-off ends.
func (d *desk) due() time.Time {
	due := d.ticked.Add(d.TTL / renewals)
	sooner := func(t time.Time) {
		if t.After(d.ticked) && t.Before(due) {
			due = t
		}
	}
	sooner(d.reapAfter)
	for _, w := range d.workers {
		sooner(w.Until)
	}
	for _, h := range d.hosts {
		sooner(h.Until)
		sooner(h.Tried.Add(trialFor))
	}
	for _, b := range d.plans {
		sooner(b.again)
	}
	return due
}

// wake is when to go on although nothing changed.
func (d *desk) wake() time.Time {
	due := d.due()
	if at, ok := d.sched.Wake(); ok && at.Before(due) {
		return at
	}
	return due
}

// wait returns when the roster changed, when it is time, or when something is handed in.
func (d *desk) wait(ctx context.Context, t time.Time) error {
	ctx, end := context.WithCancel(ctx)
	changed, slept := make(chan error, 1), make(chan error, 1)
	go func() { changed <- d.Roster.Feed.Await(ctx, d.rev) }()
	go func() { slept <- d.Sleep(ctx, t.Sub(d.now())) }()
	var err error
	select {
	case err = <-changed:
		if err == nil {
			err = d.pace.wait(ctx)
		}
		end()
		<-slept
		return err
	case err = <-slept:
	case f := <-d.calls:
		f()
	}
	end()
	<-changed
	return err
}

// hand has the owner do f, from another goroutine.
func (d *desk) hand(ctx context.Context, f func()) {
	select {
	case d.calls <- f:
	case <-ctx.Done():
	}
}
