package fleet

import (
	"context"
	"net/url"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/roster"
)

// A book is a plan that has not ended, as the scheduler knows it.
type book struct {
	roster.Plan
	live   int    // VMs that are not over
	source string // that it logs in to
	caps   map[string]int64

	opened bool // the above is known from its text
	ready  bool // its hook before the first VM is done
	failed bool // that hook failed: nothing begins until somebody says resume
	busy   bool // a listing or a hook is under way

	stopListing context.CancelFunc
	listings    int       // that failed in a row
	again       time.Time // of the next listing
}

// book returns what is known of a plan. One that has ended, and whose VMs are told once more,
// has one that nobody looks at.
func (d *desk) book(name string) *book {
	if b := d.plans[name]; b != nil {
		return b
	}
	return &book{Plan: roster.Plan{Name: name, State: roster.PlanEnded}}
}

// count counts a VM that was there or not, and is or is not.
func (b *book) count(was, is bool) {
	if was {
		b.live--
	}
	if is {
		b.live++
	}
}

// takePlan takes in a plan's row.
func (d *desk) takePlan(ctx context.Context, p roster.Plan) error {
	b := d.plans[p.Name]
	if p.State.Over() {
		if b != nil {
			delete(d.plans, p.Name)
			d.sched.ResumePlan(p.Name)
			if err := d.sched.SetPlan(p.Name, 1); err != nil { // nothing of it is remembered
				return err
			}
			d.limitsChanged()
		}
		return nil
	}
	if b == nil {
		b = &book{}
		d.plans[p.Name] = b
	}
	old := b.Plan
	p.Text = old.Text
	b.Plan = p
	if !b.opened {
		if err := d.open(ctx, b); err != nil {
			return err
		}
	}
	d.ordered(old.Order, b)
	if old.Failure != nil && p.Failure == nil {
		b.failed, b.again = false, time.Time{} // somebody said resume
		d.denied = true
	}
	return nil
}

// open reads what a plan's text says.
func (d *desk) open(ctx context.Context, b *book) error {
	full, err := d.Roster.Plans.Get(ctx, b.Name)
	if fault.Is(err, fault.NotFound) { // dropped meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	b.Text, b.opened = full.Text, true
	b.source = sourceOf(full.Text)
	if err := d.sched.SetPlan(b.Name, weightOf(full.Text)); err != nil {
		return err
	}
	if b.caps, err = d.Mover.Capacities(ctx, full); err != nil {
		d.Log.Warn("the limits of a plan are not known", "plan", b.Name, "err", err)
	}
	d.limitsChanged()
	return nil
}

// sourceOf returns the endpoint that a plan logs in to; "" of a text that is none.
func sourceOf(text string) string {
	file, found := planfile.Parse([]byte(text))
	if file == nil || found.Blocking() > 0 {
		return ""
	}
	u, err := url.Parse(string(file.Source.URL))
	if err != nil {
		return ""
	}
	return Endpoint(u)
}

// weightOf returns the weight of a plan; 1 of a text that is none.
func weightOf(text string) int {
	file, found := planfile.Parse([]byte(text))
	if file == nil || found.Blocking() > 0 {
		return 1
	}
	return file.Weight
}

// ordered has a plan's order count for all of its VMs.
func (d *desk) ordered(old roster.Order, b *book) {
	if b.Order == roster.Pause || !b.ready {
		d.sched.PausePlan(b.Name)
	} else {
		d.sched.ResumePlan(b.Name)
	}
	if undoes(old) == undoes(b.Order) {
		return
	}
	if undoes(b.Order) && b.stopListing != nil {
		b.stopListing()
	}
	for _, v := range d.vms {
		if v.Plan == b.Name && v.State == roster.Queued && d.loaded {
			d.settle(v)
		}
	}
}

// lead moves the plans on: hook, listing, VMs, hook, end. What takes time is done beside.
func (d *desk) lead(ctx context.Context) {
	for _, b := range d.plans {
		switch p := b.Plan; {
		case b.busy || !b.opened || b.failed && !undoes(p.Order):
		case p.State == roster.PlanListing && undoes(p.Order):
			d.beside(ctx, b, func() error { return d.Roster.Plans.SetState(ctx, p.Name, roster.PlanRunning, unlisted(p)) })
		case !b.ready:
			d.beside(ctx, b, func() error { return d.prepare(ctx, b, p) })
		case p.State == roster.PlanListing && d.listable(b):
			listing, stop := context.WithCancel(ctx)
			b.stopListing = stop
			d.beside(ctx, b, func() error {
				defer stop()
				return d.list(ctx, listing, b, p)
			})
		case p.State == roster.PlanRunning && b.live == 0:
			d.beside(ctx, b, func() error { return d.end(ctx, p) })
		}
	}
}

// unlisted returns why the VMs of a plan that is given up were never all found.
func unlisted(p roster.Plan) *roster.Failure {
	if p.Failure != nil {
		return p.Failure
	}
	return failureOf(fault.New(fault.Canceled, "the plan was canceled before all its VMs were found").
		WithHint("decamp retry %s looks for them again", fault.Quote(p.Name)))
}

// listable reports whether the VMs of a plan may be looked for now.
func (d *desk) listable(b *book) bool {
	_, refused := d.refusals[b.source]
	return !refused && !d.now().Before(b.again)
}

// beside does f in a goroutine of its own; nothing else is begun for the plan meanwhile. An
// error ends the time in office.
func (d *desk) beside(ctx context.Context, b *book, f func() error) {
	b.busy = true
	d.group.Go(func() error {
		if err := f(); err != nil {
			return err
		}
		d.hand(ctx, func() {
			b.busy = false
			d.denied = d.denied || len(d.refusals) > 0 // to be shown, now that nobody else writes to the plan
		})
		return nil
	})
}

// list finds the VMs of a plan. Those that were found go on while it does. The book is the
// owner's: it is touched by what is handed in only.
func (d *desk) list(ctx, listing context.Context, b *book, p roster.Plan) error {
	err := d.listOnce(listing, p)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case listing.Err() != nil: // canceled
		return nil
	case err == nil:
		return d.Roster.Plans.SetState(ctx, p.Name, roster.PlanRunning, nil)
	case isRefusal(err):
		d.hand(ctx, func() { d.denied = true })
		return nil
	case passes(err):
		d.hand(ctx, func() {
			b.listings++
			b.again = d.now().Add(pauseAfter(b.listings))
		})
		return d.Roster.Plans.SetState(ctx, p.Name, roster.PlanListing, failureOf(err))
	}
	return d.Roster.Plans.SetState(ctx, p.Name, roster.PlanRunning, failureOf(err))
}

func (d *desk) listOnce(ctx context.Context, p roster.Plan) error {
	return d.Mover.List(ctx, p, func(vms []roster.VM) error {
		for i := range vms {
			vms[i].Plan = p.Name
		}
		return d.insist(ctx, func() error { return d.Roster.VMs.Add(ctx, vms) })
	})
}
