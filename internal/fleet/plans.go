package fleet

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/fleet/login"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/planfile"
)

// A planRunner moves plans through their states: it admits them, runs their hooks, lists their VMs and
// ends them. The goroutine of the scheduler owns it. Slow work runs in goroutines of group, one for
// each plan; they change the planRunner only through callOwner.
type planRunner struct {
	Config
	now         func() time.Time      // time by the database's clock
	admission   *admission.Controller // receives the plans; owned by the scheduler
	group       *errgroup.Group       // goroutines of the scheduler's term
	calls       chan<- func()         // functions for the owner to call
	loginDenied func()                // called by the owner when the refused logins may have changed

	plans map[string]*activePlan // plans that have not ended
}

// An activePlan is a plan that has not ended.
type activePlan struct {
	fleetdb.Plan
	source     string           // endpoint of its source, host:port; "" if its text is invalid
	weight     int              // share of resources relative to other plans
	capacities map[string]int64 // limits that the plan sets, by resource

	opened bool // the fields above are set
	ready  bool // the plan is admitted, and its hook before the first VM has succeeded
	failed bool // admission or hook failed: no VM begins until an operator resumes the plan
	busy   bool // a goroutine runs for it

	stopListing context.CancelFunc // stops the listing of its VMs; nil if that has not begun
	listings    int                // consecutive listings that failed
	listAfter   time.Time          // earliest time of the next listing
}

// setPlan sets the row of a plan. A plan that has ended is dropped.
func (r *planRunner) setPlan(ctx context.Context, row fleetdb.Plan) error {
	if row.State.IsFinal() {
		r.dropPlan(row.Name)
		return nil
	}
	p := r.plans[row.Name]
	if p == nil {
		p = &activePlan{}
		r.plans[row.Name] = p
	}
	old := p.Plan
	row.Text = old.Text
	p.Plan = row
	if !p.opened {
		if err := r.readPlanText(ctx, p); err != nil {
			return err
		}
	}
	if old.Failure != nil && row.Failure == nil { // an operator resumed the plan
		p.failed, p.listAfter = false, time.Time{}
		r.loginDenied()
	}
	if row.Command.Undoes() && !old.Command.Undoes() && p.stopListing != nil {
		p.stopListing()
	}
	r.submitPlan(p)
	return nil
}

// dropPlan removes a plan that has ended.
func (r *planRunner) dropPlan(name string) {
	delete(r.plans, name)
	r.admission.DropPlan(name)
}

// readPlanText reads the text of a plan and the settings in it. A plan that was dropped meanwhile is
// left unopened.
func (r *planRunner) readPlanText(ctx context.Context, p *activePlan) error {
	full, err := r.Database.Plans.Get(ctx, p.Name)
	if fault.Is(err, fault.NotFound) { // dropped in the meantime
		return nil
	}
	if err != nil {
		return err
	}
	p.Text, p.opened = full.Text, true
	p.source, p.weight = sourceAndWeight(full.Text)
	if p.capacities, err = r.Mover.Capacities(ctx, full); err != nil {
		r.Log.Warn("limits of a plan unknown", "plan", p.Name, "err", err)
	}
	return nil
}

// submitPlan passes a plan to the admission of VMs. A plan that is canceled or rolled back needs no
// preparation.
func (r *planRunner) submitPlan(p *activePlan) {
	undoes, failure := p.Command.Undoes(), ""
	if p.failed && p.Failure != nil && !undoes {
		failure = p.Failure.Text
	}
	r.admission.SetPlan(admission.Plan{Name: p.Name, Order: p.Command, Weight: p.weight, Ready: p.ready || undoes, Failure: failure, Capacities: p.capacities})
}

// sourceAndWeight returns the endpoint of a plan's source and its weight; "" and 1 if the text is not a
// valid plan.
func sourceAndWeight(text string) (source string, weight int) {
	file, found := planfile.Parse([]byte(text))
	if file == nil || found.Blocking() > 0 {
		return "", 1
	}
	u, err := url.Parse(string(file.Source.URL))
	if err != nil {
		return "", file.Weight
	}
	return Endpoint(u), file.Weight
}

// advanceAll starts the next phase of each plan whose last one has ended: first hook, listing of VMs,
// last hook and end.
func (r *planRunner) advanceAll(ctx context.Context) {
	for _, p := range r.plans {
		switch row := p.Plan; {
		case p.busy || !p.opened || p.failed && !row.Command.Undoes():
		case row.State == fleetdb.PlanListing && row.Command.Undoes():
			r.startTask(ctx, p, func() error { return r.Database.Plans.Advance(ctx, row, fleetdb.PlanRunning, unlistedFailure(row)) })
		case !p.ready && !row.Command.Undoes():
			r.startTask(ctx, p, func() error { return r.preparePlan(ctx, p, row) })
		case row.State == fleetdb.PlanListing && r.mayList(p):
			listing, stop := context.WithCancel(ctx)
			p.stopListing = stop
			r.startTask(ctx, p, func() error {
				defer stop()
				return r.listVMs(ctx, listing, p, row)
			})
		case row.State == fleetdb.PlanRunning && r.admission.VMs(p.Name) == 0:
			r.startTask(ctx, p, func() error { return r.endPlan(ctx, row) })
		}
	}
}

// unlistedFailure returns why the list of VMs of a canceled plan is incomplete.
func unlistedFailure(p fleetdb.Plan) *fleetdb.Failure {
	if p.Failure != nil {
		return p.Failure
	}
	return failureOf(fault.New(fault.Canceled, "the plan was canceled before all its VMs were found").
		WithHint("to search for them again: decamp retry %s", fault.Quote(p.Name)))
}

// stateWithoutFailure returns the state of an active plan after its failure is removed: a plan whose
// list of VMs is incomplete lists them again.
func stateWithoutFailure(p fleetdb.Plan) fleetdb.PlanState {
	if p.Listed.IsZero() {
		return fleetdb.PlanListing
	}
	return p.State
}

// mayList reports whether the VMs of a plan may be listed now.
func (r *planRunner) mayList(p *activePlan) bool {
	_, refused := r.admission.Refusal(p.source)
	return !refused && !r.now().Before(p.listAfter)
}

// startTask calls f in a goroutine. No other task starts for the plan before f returns. An error ends
// the scheduler's term.
func (r *planRunner) startTask(ctx context.Context, p *activePlan, f func() error) {
	p.busy = true
	r.group.Go(func() error {
		if err := f(); err != nil {
			return err
		}
		r.callOwner(ctx, func() {
			p.busy = false
			if r.admission.HasRefusals() {
				r.loginDenied() // shows the refused logins, now that no goroutine writes to the plan
			}
		})
		return nil
	})
}

// callOwner makes the owner call f, from another goroutine. f is not called if ctx ends first.
func (r *planRunner) callOwner(ctx context.Context, f func()) {
	select {
	case r.calls <- f:
	case <-ctx.Done():
	}
}

// listVMs lists the VMs of a plan until ctx or listing ends. VMs can begin as soon as they are found.
// Failures that pass are retried after a pause.
func (r *planRunner) listVMs(ctx, listing context.Context, p *activePlan, row fleetdb.Plan) error {
	err := r.listOnce(listing, row)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case listing.Err() != nil: // canceled
		return nil
	case err == nil:
		return r.Database.Plans.SetState(ctx, row.Name, fleetdb.PlanRunning, nil)
	case login.IsRefusal(err):
		r.callOwner(ctx, r.loginDenied)
		return nil
	case isTransient(err):
		r.callOwner(ctx, func() {
			p.listings++
			p.listAfter = r.now().Add(pauseAfter(p.listings))
		})
		return r.Database.Plans.SetState(ctx, row.Name, fleetdb.PlanListing, failureOf(err))
	}
	return r.Database.Plans.SetState(ctx, row.Name, fleetdb.PlanRunning, failureOf(err))
}

// listOnce adds the VMs of a plan to the database as the Mover finds them.
func (r *planRunner) listOnce(ctx context.Context, p fleetdb.Plan) error {
	return r.Mover.List(ctx, p, func(vms []fleetdb.VM) error {
		for i := range vms {
			vms[i].Plan = p.Name
		}
		return r.retryWhileAway(ctx, func() error { return r.Database.VMs.Add(ctx, vms) })
	})
}

// showRefusals sets or clears the failure of plans that wait for a login.
func (r *planRunner) showRefusals(ctx context.Context) error {
	for name, p := range r.plans {
		f := r.refusalOf(p)
		shown := p.Failure != nil && strings.HasPrefix(p.Failure.Text, login.RefusedAt(p.source))
		if p.busy || f == nil && !shown || f != nil && p.Failure != nil && *f == *p.Failure {
			continue
		}
		state := p.State
		if f == nil {
			state = stateWithoutFailure(p.Plan)
		}
		if err := r.Database.Plans.SetState(ctx, name, state, f); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		p.Failure = f
		r.submitPlan(p)
	}
	return nil
}

// refusalOf returns the refused login that a plan waits for, as its failure; nil if it waits for none.
func (r *planRunner) refusalOf(p *activePlan) *fleetdb.Failure {
	refusal, refused := r.admission.Refusal(p.source)
	if !refused {
		return nil
	}
	hint := fmt.Sprintf("correct the password, then decamp resume %s: until then decamp does not log in there, because that could lock the account", fault.Quote(p.Name))
	return &fleetdb.Failure{Kind: fault.Denied.String(), Text: refusal.Err().Error(), Hint: hint}
}

// eachDeadline calls f with each time at which a listing may begin.
func (r *planRunner) eachDeadline(f func(time.Time)) {
	for _, p := range r.plans {
		f(p.listAfter)
	}
}
