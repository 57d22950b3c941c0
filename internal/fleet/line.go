package fleet

import (
	"time"

	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/sched"
)

// runOf is what a VM is called in the sched.Scheduler; keyOf finds it again.
func runOf(k roster.Key) string { return k.String() }

func keyOf(plan, run string) roster.Key { return roster.Key{Plan: plan, VM: run[len(plan)+1:]} }

// stages are sched's words for a row's. A row that holds does not say for which stage.
var stages = map[roster.Stage]sched.Stage{
	roster.NoStage: sched.Again, roster.First: sched.First, roster.Again: sched.Again, roster.Cutover: sched.Cutover,
}

// put takes a row in, if it is newer than what is known.
func (d *desk) put(v roster.VM) {
	old, known := d.vms[v.Key]
	if known && v.Rev <= old.Rev {
		return
	}
	if known && d.loaded {
		d.learn(old, v)
	}
	if v.State.Over() {
		delete(d.vms, v.Key)
	} else {
		d.vms[v.Key] = v
	}
	d.book(v.Plan).count(known, !v.State.Over())
	if d.loaded {
		d.settle(v)
	}
}

// restore counts a row as holding what it was granted.
func (d *desk) restore(v roster.VM) {
	needs, _ := d.needs(v, v.Asks)
	h := sched.Holding{Run: runOf(v.Key), Plan: v.Plan, Stage: stages[v.Asks], Needs: needs, Since: v.Since}
	if v.Expected > 0 {
		h.Until = v.Since.Add(v.Expected)
	}
	if err := d.sched.Restore(h); err != nil {
		d.Log.Warn("what a VM holds is not counted", "plan", v.Plan, "vm", v.Name, "err", err)
	}
}

// settle has the sched.Scheduler know of a VM what its row says: it holds, it is in line, or
// neither.
func (d *desk) settle(v roster.VM) {
	d.unplace(v.Key)
	delete(d.homeless, v.Key)
	delete(d.errands, v.Key)
	run := runOf(v.Key)
	if !v.Holds && d.sched.Holds(run) {
		d.sched.Release(run)
	}
	switch {
	case v.Holds:
		if !d.sched.Holds(run) && !undoes(d.orderOf(v)) { // to undo needs no turn
			d.sched.Release(run)
			d.restore(v)
		}
	case v.State == roster.Queued && undoes(d.orderOf(v)):
		d.sched.Release(run)
		d.errands[v.Key] = true
	case v.State == roster.Queued, v.Asks != roster.NoStage && !v.State.Over():
		d.enter(v)
	default:
		d.sched.Release(run)
	}
	if v.State.Over() {
		d.sched.ResumeRun(run) // nothing of it is remembered
	}
}

func (d *desk) orderOf(v roster.VM) roster.Order { return v.Order.Under(d.book(v.Plan).Order) }

// enter puts a VM into line: with the worker that has it, or with one that may take it.
func (d *desk) enter(v roster.VM) {
	run := runOf(v.Key)
	if v.State == roster.Queued {
		at, why := d.choose(v)
		if why != "" {
			d.sched.Release(run)
			d.homeless[v.Key] = why
			return
		}
		v.Worker = at.worker
		d.place(v.Key, at)
	}
	needs, expected := d.needs(v, v.Asks)
	q := sched.Request{Run: run, Plan: v.Plan, Priority: v.Priority, Stage: stages[v.Asks], Needs: needs, Expected: expected}
	if !v.NotBefore.IsZero() {
		q.Windows = []sched.Window{{From: v.NotBefore}}
	}
	if v.Order == roster.Pause {
		d.sched.PauseRun(run)
	} else {
		d.sched.ResumeRun(run)
	}
	if err := d.sched.Submit(d.now(), q); err != nil {
		d.sched.Release(run)
		d.homeless[v.Key] = err.Error()
		d.Log.Warn("a VM cannot stand in line", "plan", v.Plan, "vm", v.Name, "err", err)
	}
}

// needs is what the Mover says, and what the fleet itself limits: turns of the worker, new
// logins at the source, trials at a host that failed. All of it has a capacity then.
func (d *desk) needs(v roster.VM, stage roster.Stage) ([]sched.Need, time.Duration) {
	if stage == roster.NoStage {
		stage = roster.Again
	}
	needs, expected := d.Mover.Needs(v, stage)
	if v.Expected > 0 && v.Asks != roster.NoStage && v.State != roster.Queued {
		expected = v.Expected // who asks knows better
	}
	needs = append(needs, sched.Need{Resource: turnsOf(v.Worker), Weight: 1}, sched.Need{Resource: trialsOf(v.Host), Weight: 1})
	if v.State == roster.Queued {
		needs = append(needs, sched.Need{Resource: loginsOf(v.Source), Weight: 1})
	}
	for _, n := range needs {
		if _, known := d.known[n.Resource]; !known {
			d.capacity(n.Resource)
		}
	}
	return needs, expected
}

func turnsOf(worker string) string  { return "worker:" + worker + "/vms" }
func trialsOf(host string) string   { return "host:" + host + "/trials" }
func loginsOf(source string) string { return "source:" + source + "/logins" }
