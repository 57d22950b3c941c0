//go:build slow

package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/postgres"
)

// here stands for the namespace of the test.
const here = "here"

// A network is a set of machines, each a namespace, with a link between any two that communicate. It has no switch,
// so that each link can be cut separately.
type network struct {
	t     *testing.T
	links int
}

// A link connects two machines. It is cut at the first one, so that the second one keeps its routes and receives no
// packets.
type link struct {
	n        *network
	at, name string
}

// exec runs a tool on a machine.
func (n *network) exec(machine, name string, args ...string) {
	n.t.Helper()
	if machine == here {
		runTool(n.t, name, args...)
		return
	}
	runTool(n.t, "ip", append([]string{"netns", "exec", machine, name}, args...)...)
}

// addMachine adds a machine with the address that all others use. The address is "" for a machine without incoming
// connections.
func (n *network) addMachine(name, addr string) {
	n.t.Helper()
	if name != here {
		runTool(n.t, "ip", "netns", "add", name)
		n.exec(name, "ip", "link", "set", "lo", "up")
	}
	if addr != "" {
		n.exec(name, "ip", "addr", "add", addr+"/32", "dev", "lo")
	}
}

// addLink connects two machines, and adds a route from the second one to the address of the first one.
func (n *network) addLink(a, addr, b string) *link {
	n.t.Helper()
	n.links++
	name := fmt.Sprintf("link%d", n.links)
	runTool(n.t, "ip", "link", "add", name, "type", "veth", "peer", "name", name+"b")
	for i, end := range []struct{ machine, dev string }{{a, name}, {b, name + "b"}} {
		if end.machine != here {
			runTool(n.t, "ip", "link", "set", end.dev, "netns", end.machine)
		}
		n.exec(end.machine, "ip", "addr", "add", fmt.Sprintf("10.1.%d.%d/30", n.links, i+1), "dev", end.dev)
		n.exec(end.machine, "ip", "link", "set", end.dev, "up")
	}
	n.exec(b, "ip", "route", "add", addr+"/32", "via", fmt.Sprintf("10.1.%d.1", n.links))
	return &link{n, a, name}
}

// cut drops all packets without a signal to either end.
func (l *link) cut() { l.n.exec(l.at, "ip", "link", "set", l.name, "down") }

// heal ends cut.
func (l *link) heal() { l.n.exec(l.at, "ip", "link", "set", l.name, "up") }

// choke limits the rate in one direction, so that many packets are lost.
func (l *link) choke() {
	l.n.exec(l.at, "tc", "qdisc", "add", "dev", l.name, "root", "tbf", "rate", "400kbit", "burst", "4kb", "limit", "8kb")
}

// free ends choke.
func (l *link) free() { l.n.exec(l.at, "tc", "qdisc", "del", "dev", l.name, "root") }

// runOn runs f on a machine. Processes that f starts run there, too.
func (n *network) runOn(machine string, f func()) {
	n.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	must(n.t, err)
	defer before.Close()
	there, err := os.Open(filepath.Join("/run/netns", machine))
	must(n.t, err)
	defer there.Close()
	must(n.t, unix.Setns(int(there.Fd()), unix.CLONE_NEWNET))
	defer func() { must(n.t, unix.Setns(int(before.Fd()), unix.CLONE_NEWNET)) }()
	f()
}

// wrapperFor returns the wrapper of a command that runs on a machine.
func wrapperFor(machine string) []string { return []string{"ip", "netns", "exec", machine} }

// Addresses of the machines of a cutEnv.
const (
	vcenterAddr  = "10.99.0.1"
	databaseAddr = "10.98.0.1"
	serverAddr   = "10.97.0.1"
)

// A cutEnv is a vCenter, a database, a server and two workers with the same storage, each on one machine. The test can
// cut the links in the fields.
type cutEnv struct {
	*testEnv
	net  *network
	a, b *machine

	sourceOfA, sourceOfB *link // links of the workers to the vCenter
	dbOfA, dbOfB         *link // links of the workers to the database
	dbOfServer           *link // link of the server to the database
}

func newCutEnv(t *testing.T, cfg lab.Config) *cutEnv {
	t.Helper()
	n := &network{t: t}
	n.addMachine(here, vcenterAddr)
	n.addMachine("db", databaseAddr)
	n.addMachine("server", serverAddr)
	n.addMachine("a", "")
	n.addMachine("b", "")
	n.addLink("db", databaseAddr, here) // link of the test
	cfg.Addr, cfg.VCenter = vcenterAddr+":0", true
	c := &cutEnv{net: n}
	c.sourceOfA, c.sourceOfB = n.addLink(here, vcenterAddr, "a"), n.addLink(here, vcenterAddr, "b")
	n.addLink(here, vcenterAddr, "server")
	n.addLink("server", serverAddr, here) // link of the clients
	c.dbOfA, c.dbOfB = n.addLink("db", databaseAddr, "a"), n.addLink("db", databaseAddr, "b")
	c.dbOfServer = n.addLink("db", databaseAddr, "server")
	var db *postgres.Server
	n.runOn("db", func() { db = postgres.StartAt(t, databaseAddr) })
	c.testEnv = newTestEnv(t, cfg)
	c.db, c.insecure = db.URL(), true // without TLS
	c.a = c.startWrappedWorker(wrapperFor("a"), "a", c.vmFolder())
	c.b = c.startWrappedWorker(wrapperFor("b"), "b", c.vmFolder())
	for _, m := range []*machine{c.a, c.b} {
		m.waitForLog("worker joined", 1) // otherwise the first worker could get all VMs
	}
	return c
}

// startServerMachine starts the server on its machine.
func (c *cutEnv) startServerMachine() *server {
	c.t.Helper()
	cmd := c.command("serve", "--json", "--listen", serverAddr+":8470", "--name", "server", "--log-file", filepath.Join(c.dir, "server.log"))
	wrapCommand(c.t, cmd, wrapperFor("server"))
	return c.newServer(startProcess(c.t, cmd))
}

// waitForMore waits until the lab has sent this number of further bytes of disks.
func (c *cutEnv) waitForMore(bytes int64) {
	c.t.Helper()
	c.waitForSent(c.lab.Stats().BodyBytes + bytes)
}

// takenOver reports whether worker from runs none of the VMs any more, and worker by copies at least one of
// them. The others may wait for a slot of the source.
func (v view) takenOver(from, by string, vms []string) bool {
	copies := false
	for _, name := range vms {
		vm := v.vms[name]
		if vm.State == fleetdb.Running && vm.Worker == from {
			return false
		}
		copies = copies || vm.Worker == by && (vm.State == fleetdb.Done || vm.State == fleetdb.Running && vm.Step != "" && vm.Step != "preflight")
	}
	return copies
}

// currentView returns the current state of a plan.
func (r *testEnv) currentView(plan string) view {
	r.t.Helper()
	return r.waitFor(plan, "in the database", func(v view) bool { return v.plan.Name != "" })
}

// The network between source, database, server and workers is cut and healed while disks are copied, and it loses
// packets for a while. Each VM is moved correctly and once.
func TestNetworkIsCut(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	const vms = 16
	cfg := labOf(vms)
	cfg.Limits.DatastoreRate = 1 << 20
	c := newCutEnv(t, cfg)
	s := c.startServerMachine()
	s.runClient("plan", "run", c.writePlanOfAll("cut"), "--detach").wantExit(0)
	c.waitFor("cut", "both workers have begun", func(v view) bool { return len(v.runningOn("a")) >= 3 && len(v.runningOn("b")) >= 3 })
	c.waitForMore(1 << 20)

	orphans := c.currentView("cut").runningOn("a")
	c.dbOfA.cut()
	c.a.waitForLog("worker stopped its VMs", 1)
	c.waitFor("cut", "b copies VMs of a", func(v view) bool { return v.takenOver("a", "b", orphans) })
	c.dbOfA.heal()
	c.a.waitForLog("worker continues", 1)
	c.waitForMore(1 << 20)

	c.sourceOfB.cut()
	c.dbOfServer.cut()
	eventually(t, "the server reports that the database is unreachable", func() bool {
		r := s.runClient("status", "cut")
		return r.code == 5 && strings.Contains(r.stderr, "Remedy: ")
	})
	c.dbOfServer.heal()
	eventually(t, "the server answers again", func() bool { return s.runClient("status", "cut").code == 0 })
	c.sourceOfB.heal()
	c.waitForMore(1 << 20)

	stopped := c.a.countLog("worker stopped its VMs")
	c.dbOfA.cut()
	c.dbOfB.cut()
	c.dbOfServer.cut()
	c.a.waitForLog("worker stopped its VMs", stopped+1)
	c.dbOfA.heal()
	c.dbOfB.heal()
	c.dbOfServer.heal()
	c.waitForMore(1 << 20)

	c.dbOfA.choke()
	c.sourceOfB.choke()
	c.waitForMore(1 << 20)
	c.dbOfA.free()
	c.sourceOfB.free()

	c.sourceOfA.cut()
	c.sourceOfB.cut()
	before := c.lab.Stats().BodyBytes
	c.sourceOfA.heal()
	c.sourceOfB.heal()
	c.waitForSent(before + 1<<20)

	t.Logf("%d MiB of disks were sent", c.lab.Stats().BodyBytes>>20)
	c.lab.SetLimits(lab.Limits{})
	c.checkAllMoved("cut", c.vmFolder(), vms, c.a.state, c.b.state)
	s.runClient("status", "cut").wantExit(0).wantOutput("16 done")
}
