// Package admission decides which VM may begin its next transfer and on which worker, and explains why the
// others wait. Everything is in memory: it does no I/O and starts no goroutine. The fleet's scheduler passes
// it the rows of the fleet database and records its grants there; package simulate passes it simulated rows.
//
// A VM that waits is assigned to a worker that can take it, and requests all that its transfer needs from
// package sched: what its plan limits, a slot of its worker, permission to log in to its source, and
// permission to begin at its host, which depends on the host's health.
package admission

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sched"
)

// Options are the functions that a Controller calls. All are required.
type Options struct {
	// Needs returns the resources that a transfer of the VM holds, and how long it is likely to take;
	// 0 is unknown. The worker and the fleet's own resources are not among them.
	Needs func(vm fleetdb.VM, stage fleetdb.TransferKind) ([]sched.Need, time.Duration)

	Now func() time.Time // the time by the database's clock
	Log *slog.Logger     // receives warnings; required
}

// A Controller admits the VMs of all plans to their transfers. It is not safe for concurrent use: the
// goroutine of the scheduler owns it. Use New.
type Controller struct {
	Options
	sched      *sched.Scheduler // decides which request is granted next
	capacities *capacities      // capacities of the scheduler's resources
	workers    *workers         // workers, and the assignments of queued VMs
	hosts      *HostHealth      // hosts that failed recently
	refusals   refusals         // refused logins
	plans      map[string]Plan  // plans that have not ended

	vms          map[fleetdb.Key]fleetdb.VM // VMs that have not ended
	counts       map[string]int             // number of VMs in vms, by plan
	unassignable map[fleetdb.Key]string     // reasons of VMs that cannot wait for any worker
	undo         map[fleetdb.Key]bool       // queued VMs to undo; they need a worker and no transfer slot
	unrecorded   map[fleetdb.Key]bool       // VMs whose grant was not recorded; Tick submits them again

	started bool // Start was called: rows are submitted when they are set
}

// New returns a Controller without plans, VMs and workers.
func New(o Options) *Controller {
	c := &Controller{
		Options: o, sched: sched.New(sched.Options{}), workers: newWorkers(), hosts: newHostHealth(o),
		refusals: refusals{}, plans: map[string]Plan{},
		vms: map[fleetdb.Key]fleetdb.VM{}, counts: map[string]int{},
		unassignable: map[fleetdb.Key]string{}, undo: map[fleetdb.Key]bool{}, unrecorded: map[fleetdb.Key]bool{},
	}
	c.capacities = newCapacities(c.sched, o.Log, c.requiredUnits)
	return c
}

// Hosts returns the health of hosts, for its owner to restore and to save.
func (c *Controller) Hosts() *HostHealth { return c.hosts }

// Start submits the VMs in the order of their listing, and counts the resources that they hold. Rows
// that were set before are only collected, because all holders must be counted before the first
// decision.
func (c *Controller) Start() {
	c.started = true
	for _, v := range slices.SortedFunc(maps.Values(c.vms), func(a, b fleetdb.VM) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), strings.Compare(a.Plan, b.Plan))
	}) {
		c.submitVM(v)
	}
}

// VM returns the last row of a VM that has not ended.
func (c *Controller) VM(k fleetdb.Key) (fleetdb.VM, bool) {
	v, ok := c.vms[k]
	return v, ok
}

// VMs returns how many VMs of a plan have not ended.
func (c *Controller) VMs(plan string) int { return c.counts[plan] }

// SetVM sets the row of a VM, unless a newer one is known. It reports whether the row shows that an
// attempt was denied, so that the refused logins must be read again.
func (c *Controller) SetVM(v fleetdb.VM) (denied bool) {
	old, known := c.vms[v.Key]
	if known && v.Rev <= old.Rev {
		return false
	}
	if known && c.started {
		denied = c.judgeHost(old, v)
	}
	if v.State.IsFinal() {
		delete(c.vms, v.Key)
	} else {
		c.vms[v.Key] = v
	}
	if over := v.State.IsFinal(); known && over {
		c.countVM(v.Plan, -1)
	} else if !known && !over {
		c.countVM(v.Plan, 1)
	}
	if c.started {
		c.submitVM(v)
	}
	return denied
}

// countVM adds n to the number of active VMs of a plan.
func (c *Controller) countVM(plan string, n int) {
	if c.counts[plan] += n; c.counts[plan] == 0 {
		delete(c.counts, plan)
	}
}

// submitVM updates the sched.Scheduler from the row of a VM: the VM holds its resources, waits for
// them, or does neither.
func (c *Controller) submitVM(v fleetdb.VM) {
	c.workers.unassign(v.Key)
	delete(c.unassignable, v.Key)
	delete(c.undo, v.Key)
	run := runOf(v.Key)
	if !v.Granted && c.sched.HasGrant(run) {
		c.sched.Release(run)
	}
	switch {
	case v.Granted:
		if !c.sched.HasGrant(run) && !c.orderOf(v).Undoes() { // an undo needs no slot
			c.sched.Release(run)
			c.restoreHolding(v)
		}
	case v.State == fleetdb.Queued && c.orderOf(v).Undoes():
		c.sched.Release(run)
		c.undo[v.Key] = true
	case v.State == fleetdb.Queued, v.Requested != fleetdb.NoTransfer && !v.State.IsFinal():
		c.requestTransfer(v)
	default:
		c.sched.Release(run)
	}
	if v.State.IsFinal() {
		c.sched.ResumeRun(run) // or the sched.Scheduler would remember that it was paused
	}
}

// submitQueued submits the matching queued VMs again. They keep their position.
func (c *Controller) submitQueued(match func(fleetdb.VM) bool) {
	for _, v := range c.vms {
		if v.State == fleetdb.Queued && match(v) {
			c.submitVM(v)
		}
	}
}

// restoreHolding counts the resources that a VM holds by its row.
func (c *Controller) restoreHolding(v fleetdb.VM) {
	needs, _ := c.needsOf(v)
	h := sched.RestoredGrant{Run: runOf(v.Key), Plan: v.Plan, Kind: transferKinds[v.Requested], Needs: needs, Since: v.Since}
	if v.Expected > 0 {
		h.Until = v.Since.Add(v.Expected)
	}
	if err := c.sched.Restore(h); err != nil {
		c.Log.Warn("what a VM holds is not counted", "run", strings.Join(v.Runs, ","), "plan", v.Plan, "vm", v.VM, "name", v.Name, "err", err)
	}
}

// requestTransfer requests the resources for the next transfer of a VM. A queued VM is assigned to a
// worker first. A VM that no worker can take is unassignable.
func (c *Controller) requestTransfer(v fleetdb.VM) {
	run := runOf(v.Key)
	if v.State == fleetdb.Queued {
		to, why := c.workers.chooseWorker(v)
		if why != "" {
			c.sched.Release(run)
			c.unassignable[v.Key] = why
			return
		}
		v.Worker = to.worker
		c.workers.assign(v.Key, to)
	}
	needs, expected := c.needsOf(v)
	q := sched.Request{Run: run, Plan: v.Plan, Priority: v.Priority, Kind: transferKinds[v.Requested], Needs: needs, Expected: expected}
	if !v.NotBefore.IsZero() {
		q.Windows = []sched.Window{{From: v.NotBefore}}
	}
	if v.Command == fleetdb.Pause {
		c.sched.PauseRun(run)
	} else {
		c.sched.ResumeRun(run)
	}
	if err := c.sched.Submit(c.Now(), q); err != nil {
		c.sched.Release(run)
		c.unassignable[v.Key] = err.Error()
		c.Log.Warn("a VM cannot be scheduled", "run", strings.Join(v.Runs, ","), "plan", v.Plan, "vm", v.VM, "name", v.Name, "err", err)
	}
}

// needsOf returns the resources for the next transfer of a VM, by Options.Needs and by the fleet's own
// limits: a slot of the worker, a trial of the host and, for a queued VM, a login. It sets a capacity
// for each of them.
func (c *Controller) needsOf(v fleetdb.VM) ([]sched.Need, time.Duration) {
	stage := v.Requested
	if stage == fleetdb.NoTransfer {
		stage = fleetdb.Again
	}
	needs, expected := c.Needs(v, stage)
	if v.Expected > 0 && v.Requested != fleetdb.NoTransfer && v.State != fleetdb.Queued {
		expected = v.Expected // the requesting worker has the better estimate
	}
	needs = append(needs, sched.Need{Resource: workerSlots(v.Worker), Weight: 1}, sched.Need{Resource: hostTrials(v.Host), Weight: 1})
	if v.State == fleetdb.Queued {
		needs = append(needs, sched.Need{Resource: sourceLogins(v.Source), Weight: 1})
	}
	for _, n := range needs {
		c.capacities.ensureCapacity(n.Resource)
	}
	return needs, expected
}

// judgeHost updates the health of a VM's host by the result of an attempt. It reports whether the
// attempt was denied.
func (c *Controller) judgeHost(old, v fleetdb.VM) (denied bool) {
	driven := old.State == fleetdb.Assigned || old.State == fleetdb.Running
	switch {
	case driven && v.Failure != nil && !v.Failure.Local && (v.State == fleetdb.Queued || v.State == fleetdb.Failed):
		switch v.Failure.Kind {
		case fault.Transient.String(), fault.Unreachable.String():
			if c.hosts.recordFailure(v.Host, v.Failure.Text) {
				c.capacities.updateCapacity(hostTrials(v.Host))
			}
		case fault.Denied.String():
			return true
		}
	case v.State == fleetdb.Done, driven && old.Granted && !v.Granted && v.State == fleetdb.Running:
		if c.hosts.recordSuccess(v.Host) {
			c.capacities.updateCapacity(hostTrials(v.Host))
		}
	}
	return false
}

// SetExpectedEnd sets when the transfer of a VM is now likely to end.
func (c *Controller) SetExpectedEnd(k fleetdb.Key, t time.Time) { c.sched.SetExpectedEnd(runOf(k), t) }

// SetWorkers sets the rows of workers. If one of them can take other VMs than before, the queued VMs
// are assigned again.
func (c *Controller) SetWorkers(rows []fleetdb.Worker) {
	changed := c.workers.setRows(rows)
	for _, w := range rows {
		c.capacities.updateCapacity(workerSlots(w.Name))
	}
	if changed && c.started {
		c.submitQueued(func(v fleetdb.VM) bool { return !v.Granted })
	}
}

// Tick does the work that depends on the time: it submits VMs whose grant was not recorded, ends the
// rests of hosts, and assigns queued VMs to idle workers. Call it a few times within the length of a
// lease.
func (c *Controller) Tick() {
	for key := range c.unrecorded {
		delete(c.unrecorded, key)
		if v, ok := c.vms[key]; ok {
			c.submitVM(v)
		}
	}
	for _, host := range c.hosts.expireRests() {
		c.capacities.updateCapacity(hostTrials(host))
	}
	c.moveToIdleWorkers()
}

// moveToIdleWorkers assigns queued VMs of other workers to workers that have free slots and no queue.
func (c *Controller) moveToIdleWorkers() {
	held := map[string]int{}
	for _, v := range c.vms {
		if v.Granted {
			held[v.Worker]++
		}
	}
	for _, name := range c.workers.names {
		w := c.workers.byName[name]
		if !w.Alive || w.Drains || c.workers.queued[name] > 0 || held[name] >= w.VMs {
			continue
		}
		moved := 0
		c.submitQueued(func(v fleetdb.VM) bool {
			if v.Granted || moved >= w.VMs || !c.workers.assigned[v.Key].alternatives || !canTake(w, v) {
				return false
			}
			moved++
			return true
		})
	}
}

// NextChange returns when to call Decide although nothing has changed; false if only a change matters.
func (c *Controller) NextChange() (time.Time, bool) { return c.sched.NextChange() }

// EachDeadline calls f with each time at which a lease of a worker, the rest of a host or its trial ends.
func (c *Controller) EachDeadline(f func(time.Time)) {
	for _, w := range c.workers.byName {
		f(w.Until)
	}
	c.hosts.eachDeadline(f)
}

// runOf returns the name of a VM in the sched.Scheduler. keyOf is its inverse.
func runOf(k fleetdb.Key) string { return k.String() }

// keyOf returns the VM for a run of a plan in the sched.Scheduler.
func keyOf(plan, run string) fleetdb.Key { return fleetdb.Key{Plan: plan, VM: run[len(plan)+1:]} }

// transferKinds are the kinds of package sched by those of rows. A row with slots does not name its kind.
var transferKinds = map[fleetdb.TransferKind]sched.TransferKind{
	fleetdb.NoTransfer: sched.Again, fleetdb.First: sched.First, fleetdb.Again: sched.Again, fleetdb.Cutover: sched.Cutover,
}
