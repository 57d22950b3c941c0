package fleetdb

import (
	"context"
	"errors"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// Command is a command for a VM, or for all VMs of a plan. It is valid until the next one. Retry and
// Rollback are executed once.
type Command string

// Commands of operators.
const (
	GoOn     Command = ""         // also: resume
	Pause    Command = "pause"    // begin no transfer; a running one continues
	CutOver  Command = "cutover"  // warm VMs: switch over as soon as the round is done
	Cancel   Command = "cancel"   // stop, and undo unpublished results
	Retry    Command = "retry"    // failed and canceled VMs: continue
	Rollback Command = "rollback" // unpublished VMs: as cancel; the source runs again if it ran
	Withdraw Command = "withdraw" // one VM: as rollback, also if it is published; it is removed from its target
)

// Within returns the effective command of a VM with command o in a plan with another one: commands that
// undo always win, else the VM's own command counts.
func (o Command) Within(plan Command) Command {
	if plan.Undoes() && !o.Undoes() || o == GoOn {
		return plan
	}
	return o
}

// Undoes reports whether a command removes the results of a VM, unless it is published.
func (o Command) Undoes() bool { return o == Cancel || o == Rollback || o == Withdraw }

// requeueSQL queues VMs again without their failed attempts: $1 is the revision. A canceled VM starts
// from the beginning.
const requeueSQL = `UPDATE vms SET state = 'queued', ord = '', attempts = 0, not_before = 0, ended = 0, failure = '', step = '', waits = '', rehearse = '', rev = $1,
	asks  = CASE WHEN began > 0 AND state <> 'canceled' THEN 'again' ELSE 'first' END,
	began = CASE WHEN state = 'canceled' THEN 0 ELSE began END `

// cancelUnstartedSQL cancels VMs that never started: $1 is the revision, $2 the time.
const cancelUnstartedSQL = `UPDATE vms SET state = 'canceled', asks = '', waits = '', rehearse = '', ended = $2, rev = $1 WHERE began = 0 AND state IN ('queued', 'failed') `

// requeueFailedSQL queues failed VMs, so that a worker removes their results: $1 is the revision.
const requeueFailedSQL = `UPDATE vms SET state = 'queued', asks = 'again', not_before = 0, ended = 0, rev = $1 WHERE began > 0 AND state = 'failed' `

// requeueDoneSQL queues published VMs, so that a worker removes them from their target: $1 is the
// revision.
const requeueDoneSQL = `UPDATE vms SET state = 'queued', asks = 'again', not_before = 0, ended = 0, rev = $1 WHERE began > 0 AND state = 'done' `

// SetCommand sets the command of a VM. Retry, and the cancellation of a VM that never started, are executed
// at once. A command that contradicts the VM's state is fault.Conflict.
func (s *VMs) SetCommand(ctx context.Context, k Key, o Command) error {
	return s.db.write(ctx, o.Word()+" "+k.String(), 1, func(x *tx) error {
		v, err := x.readVM(k)
		if err != nil {
			return err
		}
		p, err := x.requirePlan(k.Plan)
		if err != nil {
			return err
		}
		if err := o.checkState(v, p.Command); err != nil {
			return err
		}
		if err := x.setVMCommand(v, o); err != nil {
			return err
		}
		return x.reopenIfQueued(p, k.VM)
	})
}

// Word returns the word that users type for an order.
func (o Command) Word() string {
	if o == GoOn {
		return "resume"
	}
	return string(o)
}

// CommandOf returns the command for a word of the user. It does not check that there is such a command.
func CommandOf(word string) Command {
	if word == GoOn.Word() {
		return GoOn
	}
	return Command(word)
}

// setVMCommand executes or records a command for v. It returns errSame if v has the command already, or is
// canceled.
func (x *tx) setVMCommand(v VM, o Command) error {
	if o == Retry {
		_, err := x.exec(requeueSQL+`WHERE plan = $2 AND vm = $3`, x.rev, v.Plan, v.VM)
		return err
	}
	if v.State == Canceled || v.Command == o && !v.State.IsFinal() {
		return errSame
	}
	_, err := x.exec(`UPDATE vms SET ord = $1, rev = $2 WHERE plan = $3 AND vm = $4`, o, x.rev, v.Plan, v.VM)
	if err != nil || !o.Undoes() {
		return err
	}
	if _, err := x.exec(cancelUnstartedSQL+`AND plan = $3 AND vm = $4`, x.rev, x.now, v.Plan, v.VM); err != nil {
		return err
	}
	if o == Withdraw {
		if _, err := x.exec(requeueDoneSQL+`AND plan = $2 AND vm = $3`, x.rev, v.Plan, v.VM); err != nil {
			return err
		}
	}
	_, err = x.exec(requeueFailedSQL+`AND plan = $2 AND vm = $3`, x.rev, v.Plan, v.VM)
	return err
}

// reopenIfQueued reopens the plan p if it has ended and its VM vm is queued now.
func (x *tx) reopenIfQueued(p Plan, vm string) error {
	if !p.State.IsFinal() {
		return nil
	}
	var alive int
	err := x.scanRow(`SELECT count(*) FROM vms WHERE plan = $1 AND vm = $2 AND state = 'queued'`, []any{p.Name, vm}, &alive)
	if err != nil || alive == 0 {
		return err
	}
	return x.reopenPlan(p)
}

// reopenPlan continues a plan that has ended or was canceled: it lists VMs again if its list is
// incomplete, else it runs.
func (x *tx) reopenPlan(p Plan) error {
	state := PlanRunning
	if p.Listed.IsZero() {
		state = PlanListing
	}
	_, err := x.exec(`UPDATE plans SET state = $1, failure = '', ended = 0, rev = $2 WHERE name = $3`, state, x.rev, p.Name)
	return err
}

// checkState returns fault.Conflict if the state of a VM contradicts the command. of is the command of
// its plan.
func (o Command) checkState(v VM, of Command) error {
	no := func(why, hint string, args ...any) error {
		return fault.New(fault.Conflict, "VM %s %s", v.Name, why).WithHint(hint, args...)
	}
	plan, at := fault.Quote(v.Plan), fault.Quote(v.Key.String())
	ending := v.Command.Undoes() && !v.State.IsFinal()
	switch {
	case o == Retry && v.State == Done:
		return no("is published already", "nothing is left to do: decamp status %s shows where it is", at)
	case o.Undoes() && o != Withdraw && v.State == Done:
		return no("is published", "decamp rollback %s --withdraw removes it from %s, with all data written to it since", at, strings.Join(v.To, ", "))
	case o == Retry && of.Undoes() && !v.State.IsFinal(), o == Retry && ending:
		return no("is being canceled", "wait until it is: decamp watch %s", plan)
	case o == Retry && of.Undoes():
		return no("is of a plan that is canceled", "decamp retry %s takes up all of it", plan)
	case o == Retry && v.State == Stranded:
		return no("waits for worker "+v.Worker+", which has its images", "start that worker")
	case o == Retry && (v.State == Assigned || v.State == Running):
		return no("is "+string(v.State), "pause it, or cancel it and retry then")
	case o == Retry || o.Undoes():
		return nil
	case v.State.IsFinal():
		return no("is "+string(v.State), "decamp retry %s begins again", at)
	case of.Undoes() || ending:
		return no("is being canceled", "wait until it is, then: decamp retry %s", at)
	case o == CutOver && !v.Warm:
		return no("is moved cold: it is switched off before its copy", "nothing: it is cut over as soon as it is copied")
	}
	return nil
}

// SetCommand sets the command of a plan. Retry, and the cancellation of VMs that never started, are executed
// at once. A command that contradicts the state of the plan is fault.Conflict.
func (s *Plans) SetCommand(ctx context.Context, name string, o Command) error {
	return s.db.write(ctx, o.Word()+" plan "+name, 1, func(x *tx) error {
		p, err := x.requirePlan(name)
		if err != nil {
			return err
		}
		if o == Retry {
			return x.retryPlan(p)
		}
		if err := x.checkPlanCommand(p, o); err != nil {
			return err
		}
		if p.Command == o && !p.State.IsFinal() {
			return errSame
		}
		if _, err := x.exec(`UPDATE plans SET ord = $1, rev = $2 WHERE name = $3`, o, x.rev, name); err != nil || !o.Undoes() {
			return err
		}
		return x.endPlan(p)
	})
}

// endPlan cancels the VMs that never started, and queues failed ones for their undo. A plan that has
// ended is reopened if it has such VMs; if nothing is left to undo, endPlan returns fault.Conflict.
func (x *tx) endPlan(p Plan) error {
	canceled, err := x.exec(cancelUnstartedSQL+`AND plan = $3`, x.rev, x.now, p.Name)
	if err != nil {
		return err
	}
	queued, err := x.exec(requeueFailedSQL+`AND plan = $2`, x.rev, p.Name)
	switch {
	case err != nil || !p.State.IsFinal():
		return err
	case queued > 0:
		return x.reopenPlan(p)
	case canceled == 0:
		return fault.New(fault.Conflict, "plan %s has ended, and nothing is left of it to undo", p.Name).
			WithHint("decamp rollback %s/VM --withdraw removes a published VM, with all data written to it since", fault.Quote(p.Name))
	}
	return nil
}

// retryPlan queues the failed and canceled VMs of a plan. While an earlier cancellation is not
// complete, it returns fault.Conflict; VMs of a lost worker do not count.
func (x *tx) retryPlan(p Plan) error {
	if err := x.checkUndone(p); err != nil {
		return err
	}
	n, err := x.exec(requeueSQL+`WHERE plan = $2 AND state IN ('failed', 'canceled')`, x.rev, p.Name)
	if err != nil {
		return err
	}
	if n == 0 && p.Failure == nil && !p.Command.Undoes() {
		return fault.New(fault.Conflict, "no VM of plan %s has failed or was canceled", p.Name).WithHint("decamp status %s lists their states", fault.Quote(p.Name))
	}
	if p.Command.Undoes() {
		if _, err := x.exec(`UPDATE plans SET ord = '', rev = $1 WHERE name = $2`, x.rev, p.Name); err != nil {
			return err
		}
	}
	if p.State.IsFinal() || p.Command.Undoes() {
		return x.reopenPlan(p)
	}
	return nil
}

// checkUndone returns fault.Conflict while VMs of a canceled plan are not undone yet.
func (x *tx) checkUndone(p Plan) error {
	if !p.Command.Undoes() {
		return nil
	}
	var left int
	err := x.scanRow(`SELECT count(*) FROM vms WHERE plan = $1 AND state IN ('queued', 'assigned', 'running')`, []any{p.Name}, &left)
	if err == nil && left > 0 {
		err = fault.New(fault.Conflict, "plan %s is being canceled: %d of its VMs are not undone yet", p.Name, left).
			WithHint("wait until they are: decamp watch %s", fault.Quote(p.Name))
	}
	return err
}

// checkPlanCommand returns fault.Conflict if the state of p contradicts the command.
func (x *tx) checkPlanCommand(p Plan, o Command) error {
	no := func(why, hint string, args ...any) error {
		return fault.New(fault.Conflict, "plan %s %s", p.Name, why).WithHint(hint, args...)
	}
	name := fault.Quote(p.Name)
	switch {
	case o == Withdraw:
		return no("has many VMs, and they are withdrawn one by one", "name one of them: decamp rollback %s/VM --withdraw", name)
	case o.Undoes():
		return nil
	case p.State.IsFinal():
		var left int
		err := x.scanRow(`SELECT count(*) FROM vms WHERE plan = $1 AND state IN ('failed', 'canceled')`, []any{p.Name}, &left)
		if err != nil || left > 0 || p.Failure != nil {
			return errors.Join(err, no("has ended", "decamp retry %s begins again what failed", name))
		}
		return no("has ended with all of its VMs published", "it accepts no further commands: decamp status %s --all lists its VMs", name)
	case p.Command.Undoes():
		return no("is being canceled", "wait until it is, then: decamp retry %s", name)
	case o == CutOver:
		var warm int
		err := x.scanRow(`SELECT count(*) FROM (SELECT 1 FROM vms WHERE plan = $1 AND warm LIMIT 1) AS w`, []any{p.Name}, &warm)
		if err == nil && warm == 0 && p.State != PlanListing {
			err = no("has no VM that is moved while it runs", "nothing: each is cut over as soon as it is copied")
		}
		return err
	}
	return nil
}
