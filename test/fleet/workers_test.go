package fleet

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/postgres"
)

// shared is the PostgreSQL server of tests that do not stop it.
var shared postgres.Shared

// newPostgresEnv returns an environment whose processes share a PostgreSQL database.
func newPostgresEnv(t *testing.T, cfg lab.Config) *testEnv {
	t.Helper()
	r := newTestEnv(t, cfg)
	r.db = shared.NewDatabase(t)
	return r
}

// newPostgresServerEnv returns an environment whose processes share a PostgreSQL server that the test can stop.
func newPostgresServerEnv(t *testing.T, cfg lab.Config) (*testEnv, *postgres.Server) {
	t.Helper()
	db := postgres.Start(t)
	r := newTestEnv(t, cfg)
	r.db = db.URL()
	return r, db
}

// A machine is a worker with its state directory and its log.
type machine struct {
	*process
	name, state, log string
}

// startWorker starts a worker that offers a folder. more are further flags.
func (r *testEnv) startWorker(name, folder string, more ...string) *machine {
	r.t.Helper()
	return r.startWrappedWorker(nil, name, folder, more...)
}

// startWorkerOf starts a worker with another decamp binary.
func (r *testEnv) startWorkerOf(binary, name, folder string, more ...string) *machine {
	r.t.Helper()
	m, cmd := r.workerCommand(name, folder, more...)
	cmd.Path = binary
	m.process = startProcess(r.t, cmd)
	return m
}

// startWrappedWorker starts a worker by a wrapper such as ip netns exec.
func (r *testEnv) startWrappedWorker(wrapper []string, name, folder string, more ...string) *machine {
	r.t.Helper()
	m, cmd := r.workerCommand(name, folder, more...)
	wrapCommand(r.t, cmd, wrapper)
	m.process = startProcess(r.t, cmd)
	return m
}

// workerCommand returns a worker that has not started, and its command.
func (r *testEnv) workerCommand(name, folder string, more ...string) (*machine, *exec.Cmd) {
	r.t.Helper()
	m := &machine{name: name, state: filepath.Join(r.dir, "state-"+name), log: filepath.Join(r.dir, name+".log")}
	r.t.Cleanup(func() {
		if text, err := os.ReadFile(m.log); r.t.Failed() && err == nil {
			r.t.Logf("log of worker %s:\n%s", name, text)
		}
	})
	return m, r.commandIn(m.state, append([]string{"worker", "--join", r.db, "--offer", folder, "--name", name, "--log-file", m.log}, more...)...)
}

// wrapCommand changes cmd so that the wrapper starts decamp. An empty wrapper changes nothing.
func wrapCommand(t *testing.T, cmd *exec.Cmd, wrapper []string) {
	t.Helper()
	if len(wrapper) == 0 {
		return
	}
	path, err := exec.LookPath(wrapper[0])
	must(t, err)
	cmd.Path, cmd.Args = path, append(append([]string{}, wrapper...), append([]string{binary}, cmd.Args[1:]...)...)
}

// waitForLog waits until the worker's log contains the text the given number of times.
func (m *machine) waitForLog(text string, times int) {
	m.t.Helper()
	eventually(m.t, m.name+" logs "+text, func() bool { return m.countLog(text) >= times })
}

// countLog returns how often the worker's log contains the text.
func (m *machine) countLog(want string) int {
	text, err := os.ReadFile(m.log)
	if err != nil {
		return 0 // not created yet
	}
	return strings.Count(string(text), want)
}

// runningOn returns the names of the VMs that a worker has begun.
func (v view) runningOn(worker string) (names []string) {
	for name, vm := range v.vms {
		if vm.Worker == worker && vm.State == fleetdb.Running && len(vm.Storage) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// submitPlan submits a plan to the workers.
func (r *testEnv) submitPlan(file string) {
	r.t.Helper()
	r.run("plan", "run", file, "--detach").wantExit(0)
}

// checkAllMoved waits for the end of a plan of labOf(n), and checks that all VMs are moved correctly.
func (r *testEnv) checkAllMoved(plan, folder string, n int, states ...string) {
	r.t.Helper()
	v := r.waitFor(plan, "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded })
	for _, vm := range v.vms {
		if vm.State != fleetdb.Done {
			r.t.Fatalf("VM %s is %s: %s", vm.Name, vm.State, v)
		}
	}
	r.checkAllPublished(folder, vmNames(n)...)
	r.checkOnlyPublished(folder, vmNames(n)...)
	r.checkSourceClean(inventory.PoweredOff, vmNames(n)...)
	r.checkPublishedOnce(v, states...)
}

// Rates of all disks of slowLabOf together, in bytes per second. The lab starts with trickle, so that no VM is done before
// the test acts. waitForSent uses slowRate until the bytes are sent.
const (
	slowRate = 1 << 20
	trickle  = 128 << 10
)

// slowLabOf is labOf with slow disks.
func slowLabOf(n int) lab.Config {
	cfg := labOf(n)
	cfg.Limits.DatastoreRate = trickle
	return cfg
}

// A worker is killed. Another one with the same storage takes its VMs over and continues.
func TestWorkerIsKilledAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	r := newPostgresEnv(t, slowLabOf(8))
	a := r.startWorker("a", r.vmFolder(), "--vms", "4")
	r.submitPlan(r.writePlanOfAll("shared"))
	r.waitFor("shared", "a has begun two VMs", func(v view) bool { return len(v.runningOn("a")) >= 2 })
	b := r.startWorker("b", r.vmFolder(), "--vms", "8") // not earlier, because b could get all VMs
	v := r.waitFor("shared", "b has begun one", func(v view) bool { return len(v.runningOn("b")) >= 1 })
	r.waitForSent(slowRate)
	orphans := v.runningOn("a")
	a.kill()
	killed := time.Now()
	r.waitFor("shared", "b has taken over", func(v view) bool {
		for _, name := range orphans {
			if vm := v.vms[name]; vm.State != fleetdb.Done && (vm.Worker != "b" || vm.State != fleetdb.Running) {
				return false
			}
		}
		return true
	})
	t.Logf("%d VMs of the killed worker were taken over within %v", len(orphans), time.Since(killed).Round(10*time.Millisecond))
	r.lab.SetLimits(lab.Limits{})
	r.checkAllMoved("shared", r.vmFolder(), 8, a.state, b.state)
}

// VMs whose images are on the local storage of a killed worker wait for it, with that reason. They continue when it is
// started again. The other VMs are moved meanwhile.
func TestWorkerWithALocalFolderIsStartedAgain(t *testing.T) {
	t.Parallel()
	r := newPostgresEnv(t, slowLabOf(4))
	other := filepath.Join(r.dir, "other")
	must(t, os.Mkdir(other, 0o700))
	a := r.startWorker("rack-a", r.vmFolder())
	b := r.startWorker("rack-b", other)
	r.submitPlan(r.writePlan("own", "defaults: {to: [dir:"+r.vmFolder()+"]}\nselect: name ~ *\nvms:\n  - {vm: vm04, to: [dir:"+other+"]}\n"))
	r.waitFor("own", "a has begun its VMs", func(v view) bool { return len(v.runningOn("rack-a")) == 3 })
	r.waitForSent(slowRate)
	a.kill()
	r.lab.SetLimits(lab.Limits{DatastoreRate: slowRate})
	r.waitFor("own", "VMs of a are stranded, and that of b is done", func(v view) bool {
		return v.count(fleetdb.Stranded) == 3 && v.vms["vm04"].State == fleetdb.Done
	})
	r.run("status", "own").wantExit(0).wantOutput("3 stranded", "worker rack-a has ended", "start it again")
	a = r.startWorker("rack-a", r.vmFolder())
	r.lab.SetLimits(lab.Limits{})
	v := r.waitFor("own", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded && v.count(fleetdb.Done) == 4 })
	r.checkAllPublished(r.vmFolder(), vmNames(3)...)
	r.checkPublished(other, "vm04", "raw", 1)
	r.checkPublishedOnce(v, a.state, b.state)
}

// A worker is suspended, and continues after another worker has taken over its VMs. It writes nothing for those VMs,
// and gets new ones.
func TestSuspendedWorkerWritesNothing(t *testing.T) {
	t.Parallel()
	r := newPostgresEnv(t, slowLabOf(6))
	a := r.startWorker("a", r.vmFolder(), "--vms", "3")
	r.submitPlan(r.writePlanOfAll("zombie"))
	r.waitFor("zombie", "a has begun", func(v view) bool { return len(v.runningOn("a")) == 3 })
	b := r.startWorker("b", r.vmFolder())
	r.waitForSent(slowRate)
	must(t, a.Process.Signal(syscall.SIGSTOP))
	r.lab.SetLimits(lab.Limits{DatastoreRate: 4 * slowRate})
	r.waitFor("zombie", "b has tried all VMs, and waits for their files", func(v view) bool {
		held := 0
		for _, vm := range v.vms {
			if vm.Failure != nil && strings.Contains(vm.Failure.Text, "another decamp process uses them") {
				held++
			}
		}
		return held > 0 && held+v.count(fleetdb.Done) == 6
	})
	must(t, a.Process.Signal(syscall.SIGCONT))
	a.waitForLog("worker stopped its VMs", 1)
	r.lab.SetLimits(lab.Limits{})
	r.checkAllMoved("zombie", r.vmFolder(), 6, a.state, b.state)
	v := r.waitFor("zombie", "in the database", func(v view) bool { return true })
	for name, vm := range v.vms {
		if vm.Worker == "a" && vm.Epoch == 1 {
			t.Errorf("%s was completed by the suspended worker", name)
		}
	}
	if s := a.signalAndWait(syscall.SIGTERM); s.ExitStatus() != 0 {
		t.Errorf("the suspended worker ended with %v", s)
	}
}

// The database is stopped, killed and suspended while disks are copied. All VMs wait, and none fails.
func TestDatabaseIsInterrupted(t *testing.T) {
	t.Parallel()
	r, db := newPostgresServerEnv(t, slowLabOf(8))
	a := r.startWorker("a", r.vmFolder())
	r.submitPlan(r.writePlanOfAll("away"))
	r.waitFor("away", "four VMs have begun", func(v view) bool { return len(v.runningOn("a")) >= 4 })
	r.waitForSent(slowRate)
	db.Stop()
	a.waitForLog("a run is stopped without its record", 1)
	db.Restart()
	a.waitForLog("worker continues", 1)
	r.waitForSent(r.lab.Stats().BodyBytes + slowRate)
	db.Kill() // up again before the lease expires
	db.Restart()
	r.waitForSent(r.lab.Stats().BodyBytes + slowRate)
	before := a.countLog("a run is stopped without its record")
	db.Suspend()
	a.waitForLog("a run is stopped without its record", before+1)
	db.Continue()
	a.waitForLog("worker continues", 2)
	r.lab.SetLimits(lab.Limits{})
	r.checkAllMoved("away", r.vmFolder(), 8, a.state)
	v := r.waitFor("away", "in the database", func(v view) bool { return len(v.vms) == 8 })
	for name, vm := range v.vms {
		if vm.Attempts > 0 {
			t.Errorf("%s has %d failed attempts, want 0", name, vm.Attempts)
		}
	}
}
