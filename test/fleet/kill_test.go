package fleet

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
)

// newRand returns a generator for random moments. The seed is DECAMP_SEED or a new one, and is logged.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("DECAMP_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	t.Logf("DECAMP_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// waitForMoment waits for a random number of changes in the database, a random number of bytes of disks, the end of the
// process, or one of the times in late, whichever is first.
func (r *testEnv) waitForMoment(rnd *rand.Rand, p *process, late ...time.Time) {
	r.t.Helper()
	rev, bytes := r.revision()+1+rnd.Int64N(60), r.lab.Stats().BodyBytes+1+rnd.Int64N(12<<20)
	eventually(r.t, "a random moment", func() bool {
		select {
		case <-p.done:
			return true
		default:
			tooLate := slices.ContainsFunc(late, func(t time.Time) bool { return time.Now().After(t) })
			return tooLate || r.lab.Stats().BodyBytes >= bytes || r.revision() >= rev
		}
	})
}

// revision returns the newest revision of the database; 0 if it is unreachable.
func (r *testEnv) revision() int64 {
	c, err := r.database().Feed.Changes(r.t.Context(), 1<<62)
	if err != nil {
		return 0
	}
	return c.Rev
}

// mixedLabOf returns a lab of n VMs that are powered off, and two that run.
func mixedLabOf(n int) lab.Config {
	cfg := labOf(n)
	cfg.Locks = lab.LockActive
	cfg.VMs = append(cfg.VMs, runningVM("warm1", 101), runningVM("warm2", 102))
	cfg.Limits.DatastoreRate = 12 << 20
	return cfg
}

// writeMixedPlan writes a plan of the VMs of mixedLabOf.
func (r *testEnv) writeMixedPlan(name string) string {
	r.t.Helper()
	return r.writePlan(name, `defaults: {to: [dir:`+r.vmFolder()+`]}
select: name ~ *
vms:
  - {vm: vm01, format: qcow2}
  - {vm: vm02, transport: nfc}
  - {vm: warm1, mode: warm, warm: {interval: 1s}}
  - {vm: warm2, mode: warm, warm: {interval: 1s}, transport: nfc}
`)
}

// checkMixedMoved checks that all VMs of writeMixedPlan are moved correctly.
func (r *testEnv) checkMixedMoved(name string, n int, states ...string) {
	r.t.Helper()
	all := append(vmNames(n), "warm1", "warm2")
	v := r.waitFor(name, "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded })
	if v.count(fleetdb.Done) != len(all) {
		r.t.Errorf("not all VMs are done: %s", v)
	}
	r.checkPublished(r.vmFolder(), all[0], "qcow2", 1)
	r.checkAllPublished(r.vmFolder(), all[1:]...)
	r.checkOnlyPublished(r.vmFolder(), all...)
	r.checkSourceClean(inventory.PoweredOff, all...)
	r.checkPublishedOnce(v, states...)
}

// checkPublishedOnce checks in the journals of all state directories that each VM was published once and by one run. If
// a machine could not record the end of a run in the database, this or another machine continues the run. It then
// writes the end to the journal again, but no commit.
func (r *testEnv) checkPublishedOnce(v view, states ...string) {
	r.t.Helper()
	for name, vm := range v.vms {
		for _, run := range vm.Runs {
			n, committed := 0, 0
			for _, state := range states {
				events, err := journal.NewStore(state).Events(journal.ID(run))
				if err != nil { // the run was never on this machine
					continue
				}
				done, commits := publications(events)
				if done > 1 && commits > 1 {
					r.t.Errorf("%s: in the journal in %s, run %s was committed %d times and ended %d times", name, state, run, commits, done)
				}
				n += done
				committed += min(done, commits)
			}
			if n == 0 || n > 1 && committed > 1 {
				r.t.Errorf("%s: run %s was published %d times, by %d machines; want once", name, run, n, committed)
			}
		}
	}
}

// publications returns how many ends and commits of the run a journal contains.
func publications(events []journal.Event) (done, committed int) {
	for _, e := range events {
		switch {
		case e.Kind == journal.RunDone:
			done++
		case e.Kind == journal.StepDone && e.Step == "commit":
			committed++
		}
	}
	return done, committed
}

// A plan run is killed repeatedly at random moments, and the same command continues the plan. Every VM is moved once,
// and decamp leaves nothing at the source.
func TestPlanIsKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	rnd := newRand(t)
	const vms = 9
	r := newTestEnv(t, mixedLabOf(vms))
	file := r.writeMixedPlan("killed")
	for i := range 6 {
		p := r.startCommand("plan", "run", file)
		r.waitForMoment(rnd, p)
		if i <= 3 { // warm1 and warm2 wait for the cutover, so that the plan cannot have ended
			p.kill()
		} else {
			p.signalAndWait(syscall.SIGKILL) // the plan may have ended
		}
		if i == 3 {
			r.run("cutover", "killed").wantExit(0)
		}
	}
	r.lab.SetLimits(lab.Limits{})
	began := time.Now()
	r.run("plan", "run", file).wantExit(0).wantOutput("11 done")
	t.Logf("after the last kill it took %v to the end", time.Since(began).Round(time.Millisecond))
	r.checkMixedMoved("killed", vms, r.stateDir())
	r.run("plan", "run", file).wantExit(0) // the plan has ended already
}
