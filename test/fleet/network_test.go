package fleet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/test/program"
)

// insideEnv is set if the test binary runs in its own network namespace.
const insideEnv = "DECAMP_TEST_INSIDE"

// inside runs the test again where it has networks of its own, which go with it. It returns true
// there, and false where the test began and is already over.
func inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		return true
	}
	requires(t, "root", "unshare", "ip", "tc")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	const begin = `mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip link set lo up && exec "$@"`
	cmd := exec.CommandContext(ctx, "unshare", "--net", "--mount", "sh", "-c", begin, "sh", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), insideEnv+"=1", program.BuiltEnv+"="+binary)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

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

func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
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
