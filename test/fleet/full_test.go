package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab"
)

// mountSmall mounts a file system of the given size on a folder until the test ends.
func mountSmall(t *testing.T, dir, size string) {
	t.Helper()
	requires(t, "root")
	must(t, syscall.Mount("decamp-test", dir, "tmpfs", 0, "size="+size))
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
}

// fillDisk fills the file system, and returns a function that frees the space.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "of-others"))
	must(t, err)
	defer f.Close()
	for page := make([]byte, os.Getpagesize()); err == nil; {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() { t.Helper(); must(t, os.Remove(f.Name())) }
}

// waitForStatus waits until decamp status prints all these texts. A small row may still fit on the disk before that.
func waitForStatus(t *testing.T, run func(...string) result, plan string, words ...string) {
	t.Helper()
	eventually(t, "status reports the reason", func() bool {
		output := run("status", plan, "--all").wantExit(0).stdout
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(output, w) })
	})
}

// checkNoFailures checks that no VM of a plan has a failed attempt.
func (r *testEnv) checkNoFailures(plan string, n int) {
	r.t.Helper()
	v := r.waitFor(plan, "in the database", func(v view) bool { return len(v.vms) == n })
	for name, vm := range v.vms {
		if vm.Attempts > 0 {
			r.t.Errorf("%s has %d failed attempts: %+v", name, vm.Attempts, vm.Failure)
		}
	}
}

// The file system of the state directory is full during a plan. The plan waits, reports the reason and a remedy,
// and continues by itself when space is free.
func TestStateDirectoryIsFull(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, slowLabOf(6))
	mountSmall(t, r.stateDir(), "32m")
	p := r.startCommand(append([]string{"plan", "run", r.writePlanOfAll("full")}, r.logFlags("full")...)...)
	r.waitFor("full", "two VMs are under way", func(v view) bool { return v.count(fleetdb.Running) >= 2 })
	r.waitForSent(slowRate)
	free := fillDisk(t, r.stateDir())
	r.lab.SetLimits(lab.Limits{})
	p.waitForOutput(p.errs, "no room under "+r.stateDir())
	waitForStatus(t, r.run, "full", "all work waits: ", "no room under "+r.stateDir(), "free space")
	eventually(t, "the lease of the process expires, as the database is full", func() bool {
		workers, err := r.database().Workers.List(t.Context())
		must(t, err)
		return len(workers) == 1 && !workers[0].Alive
	})
	r.run("plan", "run", r.writePlanOfAll("other")).wantExit(9).wantOutput("no room under "+r.stateDir(), "Remedy: free space")
	free()
	p.wantExit(0).wantOutput("6 done")
	r.checkAllMoved("full", r.vmFolder(), 6, r.stateDir())
	r.checkNoFailures("full", 6)
}

// The file system of a server's state directory is full repeatedly, at random moments. Clients get the reason, and the
// server continues by itself.
func TestStateDirectoryOfAServerIsFull(t *testing.T) {
	t.Parallel()
	rnd := newRand(t)
	r := newTestEnv(t, slowLabOf(8))
	mountSmall(t, r.stateDir(), "32m")
	s := r.startServer("127.0.0.1:0", append([]string{"--offer", r.vmFolder()}, r.logFlags("serve")...)...)
	s.runClient("plan", "run", r.writePlanOfAll("served"), "--detach").wantExit(0)
	r.waitFor("served", "two VMs are under way", func(v view) bool { return v.count(fleetdb.Running) >= 2 })
	r.lab.SetLimits(lab.Limits{DatastoreRate: slowRate})
	for i := range 4 {
		r.waitForMoment(rnd, s.process, time.Now().Add(30*time.Second)) // the plan may have ended
		free := fillDisk(t, r.stateDir())
		if i == 0 { // later the database files may contain free space
			waitForStatus(t, s.runClient, "served", "all work waits: ", "no room under "+r.stateDir())
		} else {
			r.waitForMoment(rnd, s.process, time.Now().Add(3*time.Second))
		}
		free()
		if i == 2 {
			r.lab.SetLimits(lab.Limits{})
		}
	}
	r.checkAllMoved("served", r.vmFolder(), 8, r.stateDir())
	r.checkNoFailures("served", 8)
}

// The state directory of one machine is full: its VMs wait with that reason in their rows, and other workers continue.
func TestStateDirectoryOfAWorkerIsFull(t *testing.T) {
	t.Parallel()
	r := newPostgresEnv(t, slowLabOf(6))
	state := filepath.Join(r.dir, "state-a")
	must(t, os.Mkdir(state, 0o700))
	mountSmall(t, state, "4m")
	a := r.startWorker("a", r.vmFolder(), "--vms", "2")
	r.submitPlan(r.writePlanOfAll("full"))
	r.waitFor("full", "a has begun two VMs", func(v view) bool { return len(v.runningOn("a")) == 2 })
	r.waitForSent(slowRate)
	free := fillDisk(t, a.state)
	r.lab.SetLimits(lab.Limits{})
	why := fmt.Sprintf("no room under %s", a.state)
	r.waitFor("full", "VMs wait for room", func(v view) bool {
		waiting := 0
		for _, vm := range v.vms {
			if vm.State == fleetdb.Queued && vm.Failure != nil && vm.Failure.Kind == "full" {
				waiting++
			}
		}
		return waiting+v.count(fleetdb.Done) >= 4
	})
	waitForStatus(t, r.run, "full", why)
	free()
	r.checkAllMoved("full", r.vmFolder(), 6, a.state)
	r.checkNoFailures("full", 6)
}
