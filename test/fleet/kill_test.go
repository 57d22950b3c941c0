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

// seeded returns a generator for random moments. The seed is DECAMP_SEED or a new one, and is logged.
func seeded(t *testing.T) *rand.Rand {
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

// A moment comes after so many changes in the database, or so many bytes of disks, or when the
// process has ended, whatever is first; where there may be none of it, at the latest at one of late.
func (r *rig) moment(rnd *rand.Rand, p *process, late ...time.Time) {
	r.t.Helper()
	rev, bytes := r.rev()+1+rnd.Int64N(60), r.lab.Stats().BodyBytes+1+rnd.Int64N(12<<20)
	eventually(r.t, "a random moment", func() bool {
		select {
		case <-p.done:
			return true
		default:
			over := slices.ContainsFunc(late, func(t time.Time) bool { return time.Now().After(t) })
			return over || r.lab.Stats().BodyBytes >= bytes || r.rev() >= rev
		}
	})
}

// rev is how often the database changed; 0 while it cannot be asked.
func (r *rig) rev() int64 {
	c, err := r.database().Feed.Changes(r.t.Context(), 1<<62)
	if err != nil {
		return 0
	}
	return c.Rev
}

// mixed is a lab of n VMs that are off and two that run.
func mixed(n int) lab.Config {
	cfg := many(n)
	cfg.Locks = lab.LockActive
	cfg.VMs = append(cfg.VMs, running("warm1", 101), running("warm2", 102))
	cfg.Limits.DatastoreRate = 12 << 20
	return cfg
}

// mixedPlan moves the VMs of mixed.
func (r *rig) mixedPlan(name string) string {
	r.t.Helper()
	return r.plan(name, `defaults: {to: [dir:`+r.vms()+`]}
select: name ~ *
vms:
  - {vm: vm01, format: qcow2}
  - {vm: vm02, transport: nfc}
  - {vm: warm1, mode: warm, warm: {interval: 1s}}
  - {vm: warm2, mode: warm, warm: {interval: 1s}, transport: nfc}
`)
}

// mixedIsHere checks how the VMs of mixedPlan ended.
func (r *rig) mixedIsHere(name string, n int, states ...string) {
	r.t.Helper()
	all := append(names(n), "warm1", "warm2")
	v := r.until(name, "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded })
	if v.count(fleetdb.Done) != len(all) {
		r.t.Errorf("not all are done: %s", v)
	}
	r.published(r.vms(), all[0], "qcow2", 1)
	r.allPublished(r.vms(), all[1:]...)
	r.onlyPublished(r.vms(), all...)
	r.asFound(inventory.PoweredOff, all...)
	r.publishedOnce(v, states...)
}

// publishedOnce checks that each VM was published once and by one run, by the journals of all state directories. If
// a machine could not record the end of a run in the database, this or another machine continues the run and writes
// its end to the journal again, but no commit.
func (r *rig) publishedOnce(v view, states ...string) {
	r.t.Helper()
	for name, vm := range v.vms {
		for _, run := range vm.Runs {
			n, committed := 0, 0
			for _, state := range states {
				events, err := journal.NewStore(state).Events(journal.ID(run))
				if err != nil { // it never was on this machine
					continue
				}
				done, by := publications(events)
				if done > 1 && by > 1 {
					r.t.Errorf("%s: by the journal in %s, run %s was committed %d times and ended %d times", name, state, run, by, done)
				}
				n += done
				committed += min(done, by)
			}
			if n == 0 || n > 1 && committed > 1 {
				r.t.Errorf("%s: run %s was published %d times, by %d machines", name, run, n, committed)
			}
		}
	}
}

// publications is how often a journal has the run's end, and that its machine committed it.
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

// Killed at random moments of a plan, again and again, the same command goes on, and in the
// end every VM is there once, and nothing of ours on the source.
func TestPlanIsKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	const vms = 9
	r := newRig(t, mixed(vms))
	file := r.mixedPlan("killed")
	for i := range 6 {
		p := r.begin("plan", "run", file)
		r.moment(rnd, p)
		if i <= 3 { // warm1 and warm2 wait for the cutover, so that the plan cannot have ended
			p.kill()
		} else {
			p.signal(syscall.SIGKILL) // it may have ended
		}
		if i == 3 {
			r.run("cutover", "killed").ends(0)
		}
	}
	r.lab.SetLimits(lab.Limits{})
	began := time.Now()
	r.run("plan", "run", file).ends(0).says("11 done")
	t.Logf("after the last kill it took %v to the end", time.Since(began).Round(time.Millisecond))
	r.mixedIsHere("killed", vms, r.state())
	r.run("plan", "run", file).ends(0) // an ended plan stays ended
}
