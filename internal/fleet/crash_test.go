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

// newCrashTest returns a fleet whose nodes are child processes. The database is a SQLite file if url is empty.
func newCrashTest(t *testing.T, url string, vms int) (*testFleet, *children) {
	r := newTestFleet(t, nil)
	if url != "" {
		r.url = url
		r.db = r.openDatabase()
		r.ctl = Control{r.db}
	}
	c := &children{t: t, config: childConfig{URL: r.url, Folder: t.TempDir(), VMs: vms, TTL: shortTTL}, alive: map[string]*exec.Cmd{}}
	t.Cleanup(c.killAll)
	r.submitPlan("wave")
	return r, c
}

// doneVMs returns the number of VMs that are done.
func (r *testFleet) doneVMs() int { return r.getPlan("wave").Counts[fleetdb.Done] }

// A process that is worker and scheduler on a SQLite file is killed several times. All VMs are moved.
func TestProcessIsKilledRepeatedly(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const vms, kills = 60, 5
	r, c := newCrashTest(t, "", vms)
	rng := rand.New(rand.NewPCG(7, 7))
	for kill := range kills {
		c.start("w1")
		goal := r.doneVMs() + 1 + rng.IntN(vms/kills)
		r.waitUntil(fmt.Sprintf("%d VMs before kill %d", goal, kill+1), func() bool { return r.doneVMs() >= min(goal, vms) })
		c.kill("w1")
	}
	c.start("w1")
	r.waitAllDone(vms)
	c.checkImages()
}

// waitAllDone waits for the end of the plan, and fails the test if a VM is not done.
func (r *testFleet) waitAllDone(vms int) {
	r.Helper()
	if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != vms {
		for v := range r.allVMs("wave") {
			if v.State != fleetdb.Done {
				r.Errorf("%s is %s: %v", v.VM, v.State, v.Failure)
			}
		}
	}
}

// Three processes with one PostgreSQL are killed, or suspended for longer than their leases. One process
// at a time drives a VM, and all VMs are moved.
func TestProcessesAreKilledAndFrozen(t *testing.T) {
	vms, events := 45, 4
	if lane.Slow {
		vms, events = 90, 8
	}
	r, c := newCrashTest(t, postgres.Start(t).URL(), vms)
	names := []string{"w1", "w2", "w3"}
	for _, name := range names {
		c.start(name)
	}
	rng := rand.New(rand.NewPCG(3, 11))
	for range events {
		name := names[rng.IntN(len(names))]
		goal := min(r.doneVMs()+1+rng.IntN(vms/events), vms)
		r.waitUntil("more VMs to be done", func() bool { return r.doneVMs() >= goal })
		if rng.IntN(2) == 0 {
			c.kill(name)
			c.start(name)
			continue
		}
		c.signal(name, syscall.SIGSTOP)
		r.waitUntil("the lease to expire", func() bool {
			for _, w := range r.workers() {
				if w.Name == name && w.Alive {
					return false
				}
			}
			return true
		})
		c.signal(name, syscall.SIGCONT)
	}
	r.waitAllDone(vms)
	c.checkImages()
}

// The database is stopped and started again. All VMs wait meanwhile: none fails, and no attempt is counted.
func TestPlanContinuesAfterDatabaseOutage(t *testing.T) {
	const vms = 40
	server := postgres.Start(t)
	r, c := newCrashTest(t, server.URL(), vms)
	c.start("w1")
	c.start("w2")
	r.waitUntil("the first quarter of the VMs", func() bool { return r.doneVMs() >= vms/4 })
	server.Stop()
	time.Sleep(2 * shortTTL) // longer than their leases
	server.Restart()
	r.waitUntil("half of the VMs", func() bool { return r.doneVMs() >= vms/2 })
	server.Suspend()
	time.Sleep(2 * shortTTL)
	server.Continue()
	r.waitAllDone(vms)
	for v := range r.allVMs("wave") {
		if v.Attempts != 0 {
			t.Errorf("%s has %d failed attempts, want 0: %+v", v.VM, v.Attempts, v.Failure)
		}
	}
	c.checkImages()
}
