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

// small puts a file system of so many bytes over a folder until the test ends.
func small(t *testing.T, dir, size string) {
	t.Helper()
	requires(t, "root")
	must(t, syscall.Mount("decamp-test", dir, "tmpfs", 0, "size="+size))
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
}

// fill fills the file system, and returns a function that frees the space.
func fill(t *testing.T, dir string) (room func()) {
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

// statusSays waits until decamp status has all these words. What is left of the room may take one
// more small row.
func statusSays(t *testing.T, run func(...string) result, plan string, words ...string) {
	t.Helper()
	eventually(t, "status says why all waits", func() bool {
		said := run("status", plan, "--all").ends(0).stdout
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(said, w) })
	})
}

// nobodyFailed checks that no VM of a plan counts a failure.
func (r *rig) nobodyFailed(plan string, n int) {
	r.t.Helper()
	v := r.until(plan, "there", func(v view) bool { return len(v.vms) == n })
	for name, vm := range v.vms {
		if vm.Attempts > 0 {
			r.t.Errorf("%s counts %d failures: %+v", name, vm.Attempts, vm.Failure)
		}
	}
}

// The file system of the state directory is full during a plan. The plan waits, reports the reason and a remedy, and
// continues by itself when there is space.
func TestStateDirectoryIsFull(t *testing.T) {
	t.Parallel()
	r := newRig(t, slow(6))
	small(t, r.state(), "32m")
	p := r.begin(append([]string{"plan", "run", r.all("full")}, r.log("full")...)...)
	r.until("full", "two VMs are under way", func(v view) bool { return v.count(fleetdb.Running) >= 2 })
	r.sent(slowRate)
	room := fill(t, r.state())
	r.lab.SetLimits(lab.Limits{})
	p.says(p.errs, "no room under "+r.state())
	statusSays(t, r.run, "full", "all work waits: ", "no room under "+r.state(), "free space")
	r.run("plan", "run", r.all("other")).ends(9).says("no room under "+r.state(), "Remedy: free space")
	room()
	p.ends(0).says("6 done")
	r.allIsHere("full", r.vms(), 6, r.state())
	r.nobodyFailed("full", 6)
}

// The file system of a server's state directory is full repeatedly, at random moments. Clients get the reason, and the
// server continues by itself.
func TestStateDirectoryOfAServerIsFull(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	r := newRig(t, slow(8))
	small(t, r.state(), "32m")
	s := r.serve("127.0.0.1:0", append([]string{"--offer", r.vms()}, r.log("serve")...)...)
	s.asks("plan", "run", r.all("served"), "--detach").ends(0)
	r.until("served", "two VMs are under way", func(v view) bool { return v.count(fleetdb.Running) >= 2 })
	for i := range 4 {
		r.moment(rnd, s.process, time.Now().Add(30*time.Second)) // the plan may have ended
		room := fill(t, r.state())
		if i == 0 { // later the files may have room within themselves
			statusSays(t, s.asks, "served", "all work waits: ", "no room under "+r.state())
		} else {
			r.moment(rnd, s.process, time.Now().Add(3*time.Second))
		}
		room()
		if i == 2 {
			r.lab.SetLimits(lab.Limits{})
		}
	}
	r.allIsHere("served", r.vms(), 8, r.state())
	r.nobodyFailed("served", 8)
}

// The state directory of one machine is full: its VMs wait with that reason in their rows, and other workers continue.
func TestStateDirectoryOfAWorkerIsFull(t *testing.T) {
	t.Parallel()
	r := newFleet(t, slow(6))
	state := filepath.Join(r.dir, "state-a")
	must(t, os.Mkdir(state, 0o700))
	small(t, state, "4m")
	a := r.worker("a", r.vms(), "--vms", "2")
	r.submits(r.all("full"))
	r.until("full", "a has begun two VMs", func(v view) bool { return len(v.of("a")) == 2 })
	r.sent(slowRate)
	room := fill(t, a.state)
	r.lab.SetLimits(lab.Limits{})
	why := fmt.Sprintf("no room under %s", a.state)
	r.until("full", "VMs wait for room", func(v view) bool {
		waiting := 0
		for _, vm := range v.vms {
			if vm.State == fleetdb.Queued && vm.Failure != nil && vm.Failure.Kind == "full" {
				waiting++
			}
		}
		return waiting+v.count(fleetdb.Done) >= 4
	})
	statusSays(t, r.run, "full", why)
	room()
	r.allIsHere("full", r.vms(), 6, a.state)
	r.nobodyFailed("full", 6)
}
