package migrate

import (
	"context"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
)

// Cutover says when a warm run switches the VM off. Whatever comes first counts; with none
// of them the operator says so (plan.Order).
type Cutover struct {
	At       time.Time     // zero: no time is set
	Budget   time.Duration // once the outage is expected to be at most so long; 0: no budget
	Interval time.Duration // between the beginnings of two rounds; default an hour

	// Open says whether the VM may be switched off at t, and when that changes next; zero is
	// never. The outage has to be over before it closes, as far as anybody can tell. Without At
	// and Budget the VM is switched off as soon as that holds. Nil: at any time. Who says so
	// himself (plan.Order) may do it at any time, too.
	Open func(t time.Time) (open bool, turns time.Time)

	// Boot is how long the guest takes to boot, which counts as outage. Nil: what was said
	// when the run was begun or continued before, else nothing.
	Boot *time.Duration
}

const (
	defaultInterval = time.Hour

	// lookEvery is how often a waiting run looks for orders and at the clock.
	lookEvery = time.Second

	// watchEvery is how often one looks, in whichever step it is, whether it is given up.
	watchEvery = 3 * time.Second

	// freshFor is how long after its beginning a round is good enough to be the last before
	// the VM is switched off: another takes about as long.
	freshFor = time.Minute

	// tellEvery is how often a waiting run tells what a cutover now would mean.
	tellEvery = 10 * time.Second
)

// wait returns when it is time for the next round, or for the cutover, which it records, and
// with it whether the VM runs.
func wait(ctx context.Context, r *Run) error {
	w := r.Facts.Warm
	last := w.Rounds[len(w.Rounds)-1]
	next := last.Began.Add(r.Permit.Cutover.interval())
	r.stand.still(r)
	for told := r.opts.Now(); ; {
		k, err := r.m.orders.all(r.Plan.ID, r.opts.Now())
		if err != nil {
			return err
		}
		order := k.order
		if order == plan.GoOn || order == plan.Pause {
			r.m.consider(r.Plan.ID, k)
		}
		switch now := r.opts.Now(); {
		case r.approaches(order, now):
			w.Approached = true
			return nil
		case order == plan.CutOver, r.due(now):
			return r.cutOver(ctx)
		case order != plan.Pause && !now.Before(next):
			w.Approached = false // it came to nothing
			return nil
		}
		if now := r.opts.Now(); now.Sub(told) >= tellEvery {
			o := r.outlook(now)
			r.tell(plan.Event{Kind: plan.Projected, Outlook: &o})
			told = now
		}
		if err := r.opts.Sleep(ctx, untilTick(r.opts.Now(), lookEvery)); err != nil {
			return err
		}
	}
}

// approaches reports whether one more round is to be done at once: the cutover is to come, and
// what gathered since the last round is better copied while the VM runs. Where all is compared
// anyway it would save nothing.
func (r *Run) approaches(order plan.Order, now time.Time) bool {
	w := r.Facts.Warm
	last := w.Rounds[len(w.Rounds)-1]
	if w.Approached || last.Compared || now.Sub(last.Began) < freshFor {
		return false
	}
	return order == plan.CutOver || r.Permit.Cutover.comes(now.Add(last.Took+last.Proved))
}

func (r *Run) cutOver(ctx context.Context) error {
	vm, err := r.plannedVM(ctx)
	if err != nil {
		return err
	}
	if r.toCompareFirst(vm) {
		return nil
	}
	w := r.Facts.Warm
	w.Cutover, w.WasOn = true, vm.Power == inventory.PoweredOn
	return nil
}

func (c Cutover) boot() time.Duration {
	if c.Boot == nil {
		return 0
	}
	return *c.Boot
}

// ready completes c by what is on record.
func (c *Cutover) ready(s *plan.Store, id plan.ID) error {
	if err := c.keepBoot(s, id); err != nil {
		return err
	}
	return c.fits()
}

// keepBoot puts on record how long the guest takes to boot, or finds what is there.
func (c *Cutover) keepBoot(s *plan.Store, id plan.ID) error {
	if c.Boot != nil {
		return s.SetBootTime(id, *c.Boot)
	}
	said, err := s.BootTime(id)
	c.Boot = &said
	return err
}

// fits refuses a budget that no outage fits.
func (c Cutover) fits() error {
	if c.Budget > 0 && c.boot() >= c.Budget {
		return fault.New(fault.Invalid, "a boot of %v leaves nothing of an outage of %v: it would never fit", c.boot(), c.Budget).
			WithHint("give a longer --downtime-budget, or leave it out; --boot-time 0 leaves out the boot")
	}
	return nil
}

func (c Cutover) interval() time.Duration {
	if c.Interval <= 0 {
		return defaultInterval
	}
	return c.Interval
}

// due reports whether the clock or the budget says cutover, and the outage fits the window.
func (r *Run) due(now time.Time) bool {
	c := r.Permit.Cutover
	if !c.comes(now) && (c.Budget <= 0 || len(r.Facts.Warm.Rounds) < 2) {
		return false
	}
	outage := r.outlook(now).Outage
	return c.fitsAt(now, outage) && (c.comes(now) || outage <= c.Budget)
}

// comes reports whether the time that was set is there: At, or where only a window is given,
// that.
func (c Cutover) comes(now time.Time) bool {
	if !c.At.IsZero() {
		return !now.Before(c.At)
	}
	return c.Open != nil && c.Budget <= 0 && c.fitsAt(now, 0)
}

// fitsAt reports whether an outage that begins now is over before the window closes.
func (c Cutover) fitsAt(now time.Time, outage time.Duration) bool {
	if c.Open == nil {
		return true
	}
	open, closes := c.Open(now)
	return open && (closes.IsZero() || !now.Add(outage).After(closes))
}

// missed reports whether what said cutover does no more, because the run stood in line in
// between. There is another round then.
func (r *Run) missed(vm *inventory.VM) (bool, error) {
	order, err := r.m.store.Order(r.Plan.ID)
	if err != nil || order == plan.CutOver || vm.Power != inventory.PoweredOn || r.due(r.opts.Now()) {
		return false, err
	}
	r.Facts.Warm.Cutover, r.Facts.Warm.Approached = false, false
	r.tell(plan.Event{Kind: plan.Noted, Message: "the VM is not switched off now: what said so does no more (its window closes too soon, the outage would be too long)"})
	return true, nil
}
