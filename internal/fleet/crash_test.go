package fleet

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab/postgres"
	"github.com/decamp/decamp/test/lane"
)

// crashRig is a rig whose nodes are processes.
func crashRig(t *testing.T, url string, vms int) (*rig, *children) {
	r := newRig(t, nil)
	if url != "" {
		r.url = url
		r.db = r.open()
		r.ctl = Control{r.db}
	}
	c := &children{t: t, of: childConfig{URL: r.url, Folder: t.TempDir(), VMs: vms, TTL: short}, alive: map[string]*exec.Cmd{}}
	t.Cleanup(c.killAll)
	r.submit("wave")
	return r, c
}

// done is how many VMs of the plan are.
func (r *rig) done() int { return r.plan("wave").Counts[fleetdb.Done] }

// A process that has everything, on one file, is killed again and again.
func TestProcessIsKilledAgainAndAgain(t *testing.T) {
	const vms, kills = 60, 5
	r, c := crashRig(t, "", vms)
	rng := rand.New(rand.NewPCG(7, 7))
	for kill := range kills {
		c.start("w1")
		goal := r.done() + 1 + rng.IntN(vms/kills)
		r.wait(fmt.Sprintf("%d VMs before kill %d", goal, kill+1), func() bool { return r.done() >= min(goal, vms) })
		c.kill("w1")
	}
	c.start("w1")
	r.allDone(vms)
	c.check()
}

// allDone waits for the end of the plan, which all VMs must have reached well.
func (r *rig) allDone(vms int) {
	r.Helper()
	if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != vms {
		for v := range r.each("wave") {
			if v.State != fleetdb.Done {
				r.Errorf("%s is %s: %v", v.VM, v.State, v.Failure)
			}
		}
	}
}

// Three processes over one PostgreSQL are killed, and frozen for longer than their leases, in
// turns. Each VM is driven by one at a time, and all end well.
func TestProcessesAreKilledAndFrozen(t *testing.T) {
	vms, events := 45, 4
	if lane.Slow {
		vms, events = 90, 8
	}
	r, c := crashRig(t, postgres.Start(t).URL(), vms)
	names := []string{"w1", "w2", "w3"}
	for _, name := range names {
		c.start(name)
	}
	rng := rand.New(rand.NewPCG(3, 11))
	for range events {
		name := names[rng.IntN(len(names))]
		goal := min(r.done()+1+rng.IntN(vms/events), vms)
		r.wait("some more", func() bool { return r.done() >= goal })
		if rng.IntN(2) == 0 {
			c.kill(name)
			c.start(name)
			continue
		}
		c.signal(name, syscall.SIGSTOP)
		r.wait("its lease to be over", func() bool {
			for _, w := range r.workers() {
				if w.Name == name && w.Alive {
					return false
				}
			}
			return true
		})
		c.signal(name, syscall.SIGCONT)
	}
	r.allDone(vms)
	c.check()
}

// The database is stopped and comes back: everything waits, nothing fails, and nothing counts
// as an attempt.
func TestDatabaseIsAwayForAWhile(t *testing.T) {
	const vms = 40
	server := postgres.Start(t)
	r, c := crashRig(t, server.URL(), vms)
	c.start("w1")
	c.start("w2")
	r.wait("the beginning", func() bool { return r.done() >= vms/4 })
	server.Stop()
	time.Sleep(2 * short) // for longer than their leases: there is nobody to ask
	server.Restart()
	r.wait("more", func() bool { return r.done() >= vms/2 })
	server.Suspend()
	time.Sleep(2 * short)
	server.Continue()
	r.allDone(vms)
	for v := range r.each("wave") {
		if v.Attempts != 0 {
			t.Errorf("%s counts %d attempts: %+v", v.VM, v.Attempts, v.Failure)
		}
	}
	c.check()
}
