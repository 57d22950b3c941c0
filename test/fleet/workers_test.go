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

// shared is the PostgreSQL of tests that do not stop it.
var shared postgres.Shared

// newFleet is a rig whose processes meet in a PostgreSQL.
func newFleet(t *testing.T, cfg lab.Config) *rig {
	t.Helper()
	r := newRig(t, cfg)
	r.db = shared.NewDatabase(t)
	return r
}

// newFleetOf is a rig whose processes meet in a PostgreSQL that the test stops.
func newFleetOf(t *testing.T, cfg lab.Config) (*rig, *postgres.Server) {
	t.Helper()
	db := postgres.Start(t)
	r := newRig(t, cfg)
	r.db = db.URL()
	return r, db
}

// a machine is a worker with a state directory and a log of its own.
type machine struct {
	*process
	name, state, log string
}

// worker starts one; more are its flags.
func (r *rig) worker(name, folder string, more ...string) *machine {
	r.t.Helper()
	return r.workerBy(nil, name, folder, more...)
}

// workerOf starts one of another decamp.
func (r *rig) workerOf(binary, name, folder string, more ...string) *machine {
	r.t.Helper()
	m, cmd := r.workerCommand(name, folder, more...)
	cmd.Path = binary
	m.process = start(r.t, cmd)
	return m
}

// workerBy starts one under a wrapper such as ip netns exec.
func (r *rig) workerBy(wrapper []string, name, folder string, more ...string) *machine {
	r.t.Helper()
	m, cmd := r.workerCommand(name, folder, more...)
	wrap(r.t, cmd, wrapper)
	m.process = start(r.t, cmd)
	return m
}

// workerCommand returns a worker that has not started, and its command.
func (r *rig) workerCommand(name, folder string, more ...string) (*machine, *exec.Cmd) {
	r.t.Helper()
	m := &machine{name: name, state: filepath.Join(r.dir, "state-"+name), log: filepath.Join(r.dir, name+".log")}
	r.t.Cleanup(func() {
		if text, err := os.ReadFile(m.log); r.t.Failed() && err == nil {
			r.t.Logf("log of worker %s:\n%s", name, text)
		}
	})
	return m, r.commandIn(m.state, append([]string{"worker", "--join", r.db, "--offer", folder, "--name", name, "--log-file", m.log}, more...)...)
}

// wrap has decamp started by a wrapper; none is none.
func wrap(t *testing.T, cmd *exec.Cmd, wrapper []string) {
	t.Helper()
	if len(wrapper) == 0 {
		return
	}
	path, err := exec.LookPath(wrapper[0])
	must(t, err)
	cmd.Path, cmd.Args = path, append(append([]string{}, wrapper...), append([]string{binary}, cmd.Args[1:]...)...)
}

// logs waits until the worker's log has these words so often.
func (m *machine) logs(words string, times int) {
	m.t.Helper()
	eventually(m.t, m.name+" logs "+words, func() bool { return m.logged(words) >= times })
}

// logged is how often the worker's log has these words.
func (m *machine) logged(words string) int {
	text, err := os.ReadFile(m.log)
	if err != nil {
		return 0 // it did not begin
	}
	return strings.Count(string(text), words)
}

// of are the VMs that a worker has and began.
func (v view) of(worker string) (names []string) {
	for name, vm := range v.vms {
		if vm.Worker == worker && vm.State == fleetdb.Running && len(vm.Storage) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// submits hands a plan over to the workers.
func (r *rig) submits(file string) {
	r.t.Helper()
	r.run("plan", "run", file, "--detach").ends(0)
}

// allIsHere checks that n VMs of many ended right, without one having failed on the way.
func (r *rig) allIsHere(plan, folder string, n int, states ...string) {
	r.t.Helper()
	v := r.until(plan, "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded })
	for _, vm := range v.vms {
		if vm.State != fleetdb.Done {
			r.t.Fatalf("VM %s is %s: %s", vm.Name, vm.State, v)
		}
	}
	r.allPublished(folder, names(n)...)
	r.onlyPublished(folder, names(n)...)
	r.asFound(inventory.PoweredOff, names(n)...)
	r.publishedOnce(v, states...)
}

// slowRate is how fast all disks of slow come together, in bytes per second, until the test has waited for some
// of them; trickle is how fast they come from then on.
const (
	slowRate = 1 << 20
	trickle  = 128 << 10
)

// slow is many VMs that take a while.
func slow(n int) lab.Config {
	cfg := many(n)
	cfg.Limits.DatastoreRate = slowRate
	return cfg
}

// A worker is killed. Another one with the same storage takes its VMs over and continues.
func TestWorkerIsKilledAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	r := newFleet(t, slow(8))
	a := r.worker("a", r.vms(), "--vms", "4")
	r.submits(r.all("shared"))
	r.until("shared", "a has begun two VMs", func(v view) bool { return len(v.of("a")) >= 2 })
	b := r.worker("b", r.vms(), "--vms", "8") // not before: it could have them all
	v := r.until("shared", "b has begun one", func(v view) bool { return len(v.of("b")) >= 1 })
	r.sent(slowRate)
	orphans := v.of("a")
	a.kill()
	killed := time.Now()
	r.until("shared", "b has taken over", func(v view) bool {
		for _, name := range orphans {
			if vm := v.vms[name]; vm.State != fleetdb.Done && (vm.Worker != "b" || vm.State != fleetdb.Running) {
				return false
			}
		}
		return true
	})
	t.Logf("%d VMs of the killed worker were taken over within %v", len(orphans), time.Since(killed).Round(10*time.Millisecond))
	r.lab.SetLimits(lab.Limits{})
	r.allIsHere("shared", r.vms(), 8, a.state, b.state)
}

// VMs whose images are on a worker's own storage wait for it, with that reason, and continue when it is back. The others
// continue meanwhile.
func TestWorkerWithItsOwnFolderComesBack(t *testing.T) {
	t.Parallel()
	r := newFleet(t, slow(4))
	other := filepath.Join(r.dir, "other")
	must(t, os.Mkdir(other, 0o700))
	a := r.worker("rack-a", r.vms())
	b := r.worker("rack-b", other)
	r.submits(r.plan("own", "defaults: {to: [dir:"+r.vms()+"]}\nselect: name ~ *\nvms:\n  - {vm: vm04, to: [dir:"+other+"]}\n"))
	r.until("own", "a has begun its VMs", func(v view) bool { return len(v.of("rack-a")) == 3 })
	r.sent(slowRate)
	a.kill()
	r.lab.SetLimits(lab.Limits{DatastoreRate: slowRate})
	r.until("own", "a's are stranded, and b's is done", func(v view) bool {
		return v.count(fleetdb.Stranded) == 3 && v.vms["vm04"].State == fleetdb.Done
	})
	r.run("status", "own").ends(0).says("3 stranded", "worker rack-a has ended", "start it again")
	a = r.worker("rack-a", r.vms())
	r.lab.SetLimits(lab.Limits{})
	v := r.until("own", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded && v.count(fleetdb.Done) == 4 })
	r.allPublished(r.vms(), names(3)...)
	r.published(other, "vm04", "raw", 1)
	r.publishedOnce(v, a.state, b.state)
}

// A worker is suspended, as its machine would be, and continues after others took over. It writes nothing for its
// former VMs, and gets new ones.
func TestZombieWritesNothing(t *testing.T) {
	t.Parallel()
	r := newFleet(t, slow(6))
	a := r.worker("a", r.vms(), "--vms", "3")
	r.submits(r.all("zombie"))
	r.until("zombie", "a has begun", func(v view) bool { return len(v.of("a")) == 3 })
	b := r.worker("b", r.vms())
	r.sent(slowRate)
	must(t, a.Process.Signal(syscall.SIGSTOP))
	r.lab.SetLimits(lab.Limits{DatastoreRate: 4 * slowRate})
	r.until("zombie", "b has tried all, and waits for the files", func(v view) bool {
		held := 0
		for _, vm := range v.vms {
			if vm.Failure != nil && strings.Contains(vm.Failure.Text, "another decamp process uses them") {
				held++
			}
		}
		return held > 0 && held+v.count(fleetdb.Done) == 6
	})
	must(t, a.Process.Signal(syscall.SIGCONT))
	a.logs("worker stopped its VMs", 1)
	r.lab.SetLimits(lab.Limits{})
	r.allIsHere("zombie", r.vms(), 6, a.state, b.state)
	v := r.until("zombie", "there", func(v view) bool { return true })
	for name, vm := range v.vms {
		if vm.Worker == "a" && vm.Epoch == 1 {
			t.Errorf("%s was ended by the worker that stood still", name)
		}
	}
	if s := a.signal(syscall.SIGTERM); s.ExitStatus() != 0 {
		t.Errorf("the worker that stood still ended with %v", s)
	}
}

// The database is stopped, killed and frozen while disks are moved: everything waits, and
// nothing fails.
func TestDatabaseGoesAway(t *testing.T) {
	t.Parallel()
	r, db := newFleetOf(t, slow(8))
	a := r.worker("a", r.vms())
	r.submits(r.all("away"))
	r.until("away", "begun", func(v view) bool { return len(v.of("a")) >= 4 })
	r.sent(slowRate)
	db.Stop()
	a.logs("a run is stopped without its record", 1)
	db.Restart()
	a.logs("worker continues", 1)
	r.sent(r.lab.Stats().BodyBytes + slowRate)
	db.Kill() // back before the lease is over
	db.Restart()
	r.sent(r.lab.Stats().BodyBytes + slowRate)
	before := a.logged("a run is stopped without its record")
	db.Suspend()
	a.logs("a run is stopped without its record", before+1)
	db.Continue()
	a.logs("worker continues", 2)
	r.lab.SetLimits(lab.Limits{})
	r.allIsHere("away", r.vms(), 8, a.state)
	v := r.until("away", "there", func(v view) bool { return len(v.vms) == 8 })
	for name, vm := range v.vms {
		if vm.Attempts > 0 {
			t.Errorf("%s counts %d failures", name, vm.Attempts)
		}
	}
}
