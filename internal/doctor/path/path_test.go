package path

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/doctor"
)

// insideEnv is set if the test binary runs in its own namespaces.
const insideEnv = "PATH_TEST_INSIDE"

// testTimeout is long enough for a busy machine.
const testTimeout = time.Minute

// runInNamespaces runs the test again in new network and mount namespaces, which the kernel removes at its end. It
// returns true in the namespaces. Outside of them, it returns false after the test ended.
func runInNamespaces(t *testing.T) bool {
	t.Helper()
	if testing.Short() {
		t.Skip("creates networks")
	}
	if os.Getenv(insideEnv) != "" {
		return true
	}
	for _, tool := range []string{"unshare", "ip", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	if exec.Command("unshare", "--net", "--mount", "true").Run() != nil {
		t.Skip("cannot create namespaces: requires root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	const begin = `mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip link set lo up && exec "$@"`
	cmd := exec.CommandContext(ctx, "unshare", "--net", "--mount", "sh", "-c", begin, "sh", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

func runIP(t *testing.T, args string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

// connectHost connects this machine (10.1.0.1, way0) to a host (10.1.0.2) by a link with an MTU at each end.
func connectHost(t *testing.T, ours, theirs int) {
	t.Helper()
	runIP(t, "netns add host")
	t.Cleanup(func() { runIP(t, "netns del host") })
	runIP(t, "link add way0 type veth peer name end0 netns host")
	for _, args := range []string{
		fmt.Sprintf("link set way0 up mtu %d", ours), "addr add 10.1.0.1/24 dev way0",
		"-n host link set lo up", fmt.Sprintf("-n host link set end0 up mtu %d", theirs), "-n host addr add 10.1.0.2/24 dev end0",
	} {
		runIP(t, args)
	}
}

// connectByRouter connects this machine to a host (10.2.0.2) by a router, whose link to the host has another MTU.
func connectByRouter(t *testing.T, ours, theirs int) {
	t.Helper()
	for _, ns := range []string{"router", "host"} {
		runIP(t, "netns add "+ns)
		t.Cleanup(func() { runIP(t, "netns del "+ns) })
	}
	runIP(t, "link add way0 type veth peer name near0 netns router")
	runIP(t, "-n router link add far0 type veth peer name end0 netns host")
	for _, args := range []string{
		fmt.Sprintf("link set way0 up mtu %d", ours), "addr add 10.1.0.1/24 dev way0", "route add 10.2.0.0/24 via 10.1.0.2",
		fmt.Sprintf("-n router link set near0 up mtu %d", ours), "-n router addr add 10.1.0.2/24 dev near0",
		fmt.Sprintf("-n router link set far0 up mtu %d", theirs), "-n router addr add 10.2.0.1/24 dev far0",
		fmt.Sprintf("-n host link set end0 up mtu %d", theirs), "-n host addr add 10.2.0.2/24 dev end0", "-n host route add default via 10.2.0.1",
		"netns exec router sysctl -qw net.ipv4.ip_forward=1",
	} {
		runIP(t, args)
	}
}

// runInHostNetwork runs f in the network of the host.
func runInHostNetwork(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	must(t, err)
	defer before.Close()
	host, err := os.Open(filepath.Join("/run/netns", "host"))
	must(t, err)
	defer host.Close()
	must(t, unix.Setns(int(host.Fd()), unix.CLONE_NEWNET))
	defer func() { must(t, unix.Setns(int(before.Fd()), unix.CLONE_NEWNET)) }()
	f()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sent is the number of bytes of a test connection.
const sent = 4 << 20

// listenOnHost starts a server on the host, which runs until the test ends. It replies after it received sent bytes.
func listenOnHost(t *testing.T, port int) {
	t.Helper()
	var l net.Listener
	runInHostNetwork(t, func() {
		var err error
		l, err = net.Listen("tcp4", fmt.Sprintf(":%d", port))
		must(t, err)
	})
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.CopyN(io.Discard, c, sent) // no reply to a client that sends less
				_, _ = c.Write([]byte{1})
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
}

// newSysfs returns a /sys with way0 as a VLAN on a bond of two NICs.
func newSysfs(mbits string) fs.FS {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	return fstest.MapFS{
		"sys/class/net/way0/speed":            file("-1\n"),
		"sys/class/net/way0/lower_bond0/x":    file(""),
		"sys/class/net/bond0/lower_eth0/x":    file(""),
		"sys/class/net/bond0/lower_eth1/x":    file(""),
		"sys/class/net/eth0/speed":            file(mbits + "\n"),
		"sys/class/net/eth0/duplex":           file("full\n"),
		"sys/class/net/eth1/speed":            file("10\n"),
		"proc/sys/net/ipv4/tcp_rmem":          file("4096\t131072\t6291456\n"),
		"sys/class/net/way0/duplex":           file("unknown\n"),
		"sys/class/net/bond0/speed":           file("-1\n"),
		"sys/class/net/eth1/duplex":           file("full\n"),
		"sys/class/net/unrelated/lower_x/nil": file(""),
	}
}

func examine(t *testing.T, o Options) map[string][]doctor.Finding {
	t.Helper()
	o.Wait = 2 * time.Second // a busy machine is slow to reply
	found := map[string][]doctor.Finding{}
	for _, f := range doctor.Examine(t.Context(), Checks(o), doctor.Options{}) {
		if f.Status != doctor.OK && (f.Remedy == "" || f.Found == "" || f.Want == "") {
			t.Errorf("the finding is incomplete: %+v", f)
		}
		t.Logf("%s %s (%s): %s", f.Status, f.Code, f.On, f.Found)
		found[f.Code] = append(found[f.Code], f)
	}
	return found
}

func wantFinding(t *testing.T, found []doctor.Finding, s doctor.Status, text string) {
	t.Helper()
	if len(found) == 0 || found[0].Status != s || !strings.Contains(found[0].Found, text) {
		t.Errorf("got findings %+v, want %v: %s", found, s, text)
	}
}

func TestPathWithoutProblems(t *testing.T) {
	if !runInNamespaces(t) {
		return
	}
	connectHost(t, 9000, 9000)
	listenOnHost(t, 443)
	c, err := net.Dial("tcp", "10.1.0.2:443")
	must(t, err)
	defer c.Close()
	_, err = c.Write(make([]byte, sent))
	must(t, err)
	_, err = c.Read(make([]byte, 1))
	must(t, err)
	found := examine(t, Options{Host: "10.1.0.2", Transport: Landing, Root: newSysfs("25000")})
	wantFinding(t, found["path-route"], doctor.OK, "10.1.0.2 through way0, from 10.1.0.1")
	wantFinding(t, found["path-ports"], doctor.OK, "the port is open")
	wantFinding(t, found["path-mtu"], doctor.OK, "packets of 9000 bytes reach the host")
	wantFinding(t, found["path-ends"], doctor.OK, "MTU 9000 on this machine (way0), 9000 on the host (TCP handshake)")
	wantFinding(t, found["path-jumbo"], doctor.OK, "")
	wantFinding(t, found["path-link"], doctor.OK, "eth0: 25000 Mbit/s, MTU 9000")
	wantFinding(t, found["path-landing"], doctor.OK, "the port is free")
	found = examine(t, Options{Host: "10.1.0.2", Transport: Landing, Root: newSysfs("25000"), MayListen: func(port int) bool { return port != 111 }})
	wantFinding(t, found["path-landing"], doctor.Failure, "this process may not listen on the port")
	slow := examine(t, Options{Host: "10.1.0.2", Transport: HTTPS, Root: newSysfs("1000")})
	wantFinding(t, slow["path-jumbo"], doctor.Advice, "MTU 9000 with --transport https")

	// The kernel decides how many segments it sends again and how long a round trip takes, also on this link.
	// TestPacketLossIsRated covers the finding about segments sent again. The round trip may take 25 ms at 1 Gbit/s.
	tcp := slices.Clone(slow["path-tcp"])
	slices.SortFunc(tcp, func(a, b doctor.Finding) int { return strings.Compare(a.Found, b.Found) }) // the connections are before the round-trip time
	if len(tcp) != 2 || !strings.HasPrefix(tcp[0].Found, "connections with data: 1 (4 MB); ") {
		t.Fatalf("got findings %+v, want one about the connection", tcp)
	}
	wantFinding(t, tcp[1:], doctor.OK, "packets of 9000 bytes; buffers of 6144 KiB suffice for the link")
}

// A network drops packets above the MTU of one end without an error.
func TestBlackHole(t *testing.T) {
	if !runInNamespaces(t) {
		return
	}
	connectHost(t, 9000, 1500)
	listenOnHost(t, 443)
	found := examine(t, Options{Host: "10.1.0.2", Root: newSysfs("1000")})
	wantFinding(t, found["path-mtu"], doctor.Failure, "packets of up to 1500 bytes arrive; packets of 1600, 2000, 4000, 4074, 8000, 8900, 8950, 8996, 9000 bytes are lost without an error, so connections stall (MTU black hole)")
	wantFinding(t, found["path-ends"], doctor.Warning, "MTU 9000 on this machine (way0), 1500 on the host (TCP handshake)")
	wantFinding(t, found["path-link"], doctor.Advice, "1000 Mbit/s")
	wantFinding(t, found["path-ports"], doctor.Advice, "the port is closed")
	if len(found["path-jumbo"]) > 0 {
		t.Errorf("got advice about jumbo frames despite the black hole: %+v", found["path-jumbo"])
	}
}

func TestRouterReportsMTU(t *testing.T) {
	if !runInNamespaces(t) {
		return
	}
	connectByRouter(t, 9000, 1400)
	found := examine(t, Options{Host: "10.2.0.2", HostMTU: 1400, Transport: NFC, Root: newSysfs("100")})
	wantFinding(t, found["path-mtu"], doctor.Advice, "10.1.0.2 limits packets to 1400 bytes")
	wantFinding(t, found["path-ends"], doctor.Warning, "MTU 9000 on this machine (way0), 1400 on the host (vmknic)")
	wantFinding(t, found["path-link"], doctor.Warning, "100 Mbit/s")
	wantFinding(t, found["path-ports"], doctor.Failure, "the port is closed")
}

// The replies of the host are dropped, and another process uses a port of the landing.
func TestDroppedRepliesAndUsedPorts(t *testing.T) {
	if !runInNamespaces(t) {
		return
	}
	connectHost(t, 1500, 1500)
	runIP(t, "-n host route add blackhole 10.1.0.1/32")
	l, err := net.Listen("tcp4", "127.0.0.1:2049")
	must(t, err)
	defer l.Close()
	found := examine(t, Options{Host: "10.1.0.2", Transport: Landing, Root: newSysfs("10000")})
	wantFinding(t, found["path-ports"], doctor.Failure, "no answer: a firewall")
	wantFinding(t, found["path-mtu"], doctor.Unknown, "10.1.0.2 does not answer echo requests")
	if len(found["path-tcp"]) > 0 {
		t.Errorf("a host that does not reply: got findings %+v about connections", found["path-tcp"])
	}
	wantFinding(t, found["path-landing"], doctor.Failure, "the port is in use by path.test (process ")
}
