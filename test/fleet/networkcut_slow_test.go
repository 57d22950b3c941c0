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

// here is the namespace of the test itself.
const here = "here"

// A network is a set of machines, each a namespace, with a link between any two that communicate. There is no switch,
// so each link can be cut alone.
type network struct {
	t     *testing.T
	links int
}

// A link has two ends. What is cut is cut at the first one; the second one sees silence, and
// keeps its routes.
type link struct {
	n        *network
	at, name string
}

// in runs a tool on a machine.
func (n *network) in(machine, name string, args ...string) {
	n.t.Helper()
	if machine == here {
		tool(n.t, name, args...)
		return
	}
	tool(n.t, "ip", append([]string{"netns", "exec", machine, name}, args...)...)
}

// machine adds a machine with the address that all others use; "" is one without incoming connections.
func (n *network) machine(name, addr string) {
	n.t.Helper()
	if name != here {
		tool(n.t, "ip", "netns", "add", name)
		n.in(name, "ip", "link", "set", "lo", "up")
	}
	if addr != "" {
		n.in(name, "ip", "addr", "add", addr+"/32", "dev", "lo")
	}
}

// link joins two machines. The second one finds the first one's address there.
func (n *network) link(a, addr, b string) *link {
	n.t.Helper()
	n.links++
	name := fmt.Sprintf("link%d", n.links)
	tool(n.t, "ip", "link", "add", name, "type", "veth", "peer", "name", name+"b")
	for i, end := range []struct{ machine, dev string }{{a, name}, {b, name + "b"}} {
		if end.machine != here {
			tool(n.t, "ip", "link", "set", end.dev, "netns", end.machine)
		}
		n.in(end.machine, "ip", "addr", "add", fmt.Sprintf("10.1.%d.%d/30", n.links, i+1), "dev", end.dev)
		n.in(end.machine, "ip", "link", "set", end.dev, "up")
	}
	n.in(b, "ip", "route", "add", addr+"/32", "via", fmt.Sprintf("10.1.%d.1", n.links))
	return &link{n, a, name}
}

// cut drops all packets without a signal to either end.
func (l *link) cut() { l.n.in(l.at, "ip", "link", "set", l.name, "down") }

// heal ends cut.
func (l *link) heal() { l.n.in(l.at, "ip", "link", "set", l.name, "up") }

// choke lets little through that way and drops what is more, so that much is lost.
func (l *link) choke() {
	l.n.in(l.at, "tc", "qdisc", "add", "dev", l.name, "root", "tbf", "rate", "400kbit", "burst", "4kb", "limit", "8kb")
}

// free ends choke.
func (l *link) free() { l.n.in(l.at, "tc", "qdisc", "del", "dev", l.name, "root") }

// within runs f, and starts what it starts, on a machine.
func (n *network) within(machine string, f func()) {
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

// on is the wrapper of a command that runs on a machine.
func on(machine string) []string { return []string{"ip", "netns", "exec", machine} }

// Addresses by which the machines of a cutRig know each other.
const (
	vcenterAddr  = "10.99.0.1"
	databaseAddr = "10.98.0.1"
	serverAddr   = "10.97.0.1"
)

// A cutRig is a vCenter, a database, a server and two workers with one storage, on a machine
// each. All links but the test's own can be cut.
type cutRig struct {
	*rig
	net  *network
	a, b *machine

	sourceOfA, sourceOfB    *link // of the workers to the vCenter
	recordOfA, recordOfB    *link // to the database
	recordOfServer, ofOrder *link // of the server to the database, and to those who ask it
}

func newCutRig(t *testing.T, cfg lab.Config) *cutRig {
	t.Helper()
	n := &network{t: t}
	n.machine(here, vcenterAddr)
	n.machine("db", databaseAddr)
	n.machine("server", serverAddr)
	n.machine("a", "")
	n.machine("b", "")
	n.link("db", databaseAddr, here) // the test looks at all times
	cfg.Addr, cfg.VCenter = vcenterAddr+":0", true
	c := &cutRig{net: n}
	c.sourceOfA, c.sourceOfB = n.link(here, vcenterAddr, "a"), n.link(here, vcenterAddr, "b")
	n.link(here, vcenterAddr, "server")
	c.ofOrder = n.link("server", serverAddr, here)
	c.recordOfA, c.recordOfB = n.link("db", databaseAddr, "a"), n.link("db", databaseAddr, "b")
	c.recordOfServer = n.link("db", databaseAddr, "server")
	var db *postgres.Server
	n.within("db", func() { db = postgres.StartAt(t, databaseAddr) })
	c.rig = newRig(t, cfg)
	c.db, c.insecure = db.URL(), true // it has no TLS
	c.a = c.workerBy(on("a"), "a", c.vms())
	c.b = c.workerBy(on("b"), "b", c.vms())
	for _, m := range []*machine{c.a, c.b} {
		m.logs("worker joined", 1) // the first one could have all VMs
	}
	return c
}

// serves starts the server.
func (c *cutRig) serves() *serving {
	c.t.Helper()
	cmd := c.command("serve", "--json", "--listen", serverAddr+":8470", "--name", "server", "--log-file", filepath.Join(c.dir, "server.log"))
	wrap(c.t, cmd, on("server"))
	return c.served(start(c.t, cmd))
}

// moved waits until so many more bytes of disks were sent.
func (c *cutRig) moved(bytes int64) {
	c.t.Helper()
	c.sent(c.lab.Stats().BodyBytes + bytes)
}

// takenOver reports whether no VM is left with the worker that had them, and another one copies at least one
// of them. The others may wait until the source has room.
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

// look returns how a plan is now.
func (r *rig) look(plan string) view {
	r.t.Helper()
	return r.until(plan, "there", func(v view) bool { return v.plan.Name != "" })
}

// The network is cut between any two of source, database, server and workers while disks are
// moved, and healed; it is bad for a while, too. All ends right, none twice.
func TestNetworkIsCut(t *testing.T) {
	t.Parallel()
	if !inside(t) {
		return
	}
	const vms = 16
	cfg := many(vms)
	cfg.Limits.DatastoreRate = 1 << 20
	c := newCutRig(t, cfg)
	s := c.serves()
	s.asks("plan", "run", c.all("cut"), "--detach").ends(0)
	c.until("cut", "both have begun", func(v view) bool { return len(v.of("a")) >= 3 && len(v.of("b")) >= 3 })
	c.moved(1 << 20)

	orphans := c.look("cut").of("a")
	c.recordOfA.cut()
	c.a.logs("worker stopped its VMs", 1)
	c.until("cut", "b copies what a had", func(v view) bool { return v.takenOver("a", "b", orphans) })
	c.recordOfA.heal()
	c.a.logs("worker continues", 1)
	c.moved(1 << 20)

	c.sourceOfB.cut()
	c.recordOfServer.cut()
	eventually(t, "the server says that the database is away", func() bool {
		r := s.asks("status", "cut")
		return r.code == 5 && strings.Contains(r.stderr, "Remedy: ")
	})
	c.recordOfServer.heal()
	eventually(t, "the server answers again", func() bool { return s.asks("status", "cut").code == 0 })
	c.sourceOfB.heal()
	c.moved(1 << 20)

	stopped := c.a.logged("worker stopped its VMs")
	c.recordOfA.cut()
	c.recordOfB.cut()
	c.recordOfServer.cut()
	c.a.logs("worker stopped its VMs", stopped+1)
	c.recordOfA.heal()
	c.recordOfB.heal()
	c.recordOfServer.heal()
	c.moved(1 << 20)

	c.recordOfA.choke()
	c.sourceOfB.choke()
	c.moved(1 << 20)
	c.recordOfA.free()
	c.sourceOfB.free()

	c.sourceOfA.cut()
	c.sourceOfB.cut()
	before := c.lab.Stats().BodyBytes
	c.sourceOfA.heal()
	c.sourceOfB.heal()
	c.sent(before + 1<<20)

	t.Logf("%d MiB of disks were sent until here", c.lab.Stats().BodyBytes>>20)
	c.lab.SetLimits(lab.Limits{})
	c.allIsHere("cut", c.vms(), vms, c.a.state, c.b.state)
	s.asks("status", "cut").ends(0).says("16 done")
}
