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

// insideEnv tells the test binary that it runs where it has networks of its own.
const insideEnv = "PATH_TEST_INSIDE"

// patience is for a busy machine.
const patience = time.Minute

// inside runs the test again where it has networks of its own, which go with it. It returns true
// there, and false where the test began and is already over.
func inside(t *testing.T) bool {
	t.Helper()
	if testing.Short() {
		t.Skip("makes networks")
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
		t.Skip("no namespaces of one's own here: needs root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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

func ip(t *testing.T, args string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

// straight joins us (10.1.0.1, way0) to a host (10.1.0.2) by a link with an MTU at each end.
func straight(t *testing.T, ours, theirs int) {
	t.Helper()
	ip(t, "netns add host")
	t.Cleanup(func() { ip(t, "netns del host") })
	ip(t, "link add way0 type veth peer name end0 netns host")
	for _, args := range []string{
		fmt.Sprintf("link set way0 up mtu %d", ours), "addr add 10.1.0.1/24 dev way0",
		"-n host link set lo up", fmt.Sprintf("-n host link set end0 up mtu %d", theirs), "-n host addr add 10.1.0.2/24 dev end0",
	} {
		ip(t, args)
	}
}

// routed puts a router between, whose link to the host (10.2.0.2) has another MTU.
func routed(t *testing.T, ours, theirs int) {
	t.Helper()
	for _, ns := range []string{"router", "host"} {
		ip(t, "netns add "+ns)
		t.Cleanup(func() { ip(t, "netns del "+ns) })
	}
	ip(t, "link add way0 type veth peer name near0 netns router")
	ip(t, "-n router link add far0 type veth peer name end0 netns host")
	for _, args := range []string{
		fmt.Sprintf("link set way0 up mtu %d", ours), "addr add 10.1.0.1/24 dev way0", "route add 10.2.0.0/24 via 10.1.0.2",
		fmt.Sprintf("-n router link set near0 up mtu %d", ours), "-n router addr add 10.1.0.2/24 dev near0",
		fmt.Sprintf("-n router link set far0 up mtu %d", theirs), "-n router addr add 10.2.0.1/24 dev far0",
		fmt.Sprintf("-n host link set end0 up mtu %d", theirs), "-n host addr add 10.2.0.2/24 dev end0", "-n host route add default via 10.2.0.1",
		"netns exec router sysctl -qw net.ipv4.ip_forward=1",
	} {
		ip(t, args)
	}
}

// within runs f in the host's network.
func within(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	must(t, err)
	defer before.Close()
	there, err := os.Open(filepath.Join("/run/netns", "host"))
	must(t, err)
	defer there.Close()
	must(t, unix.Setns(int(there.Fd()), unix.CLONE_NEWNET))
	defer func() { must(t, unix.Setns(int(before.Fd()), unix.CLONE_NEWNET)) }()
	f()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sent is what a connection of the tests carries, in bytes.
const sent = 4 << 20

// listen has the host accept connections, take what comes and answer once it was sent, until the
// test ends.
func listen(t *testing.T, port int) {
	t.Helper()
	var l net.Listener
	within(t, func() {
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
				_, _ = io.CopyN(io.Discard, c, sent) // who sends less gets no answer
				_, _ = c.Write([]byte{1})
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
}

// nic is a /sys in which the way out is a VLAN on a bond of NICs.
func nic(mbits string) fs.FS {
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

func look(t *testing.T, o Options) map[string][]doctor.Finding {
	t.Helper()
	o.Wait = 2 * time.Second // an answer takes long on a busy machine
	found := map[string][]doctor.Finding{}
	for _, f := range doctor.Examine(t.Context(), Checks(o), doctor.Options{}) {
		if f.Status != doctor.OK && (f.Remedy == "" || f.Found == "" || f.Want == "") {
			t.Errorf("nothing to do about %+v", f)
		}
		t.Logf("%s %s (%s): %s", f.Status, f.Code, f.On, f.Found)
		found[f.Code] = append(found[f.Code], f)
	}
	return found
}

func expect(t *testing.T, found []doctor.Finding, s doctor.Status, seen string) {
	t.Helper()
	if len(found) == 0 || found[0].Status != s || !strings.Contains(found[0].Found, seen) {
		t.Errorf("%+v, want %v: %s", found, s, seen)
	}
}

func TestWayThatIsWell(t *testing.T) {
	if !inside(t) {
		return
	}
	straight(t, 9000, 9000)
	listen(t, 443)
	c, err := net.Dial("tcp", "10.1.0.2:443")
	must(t, err)
	defer c.Close()
	_, err = c.Write(make([]byte, sent))
	must(t, err)
	_, err = c.Read(make([]byte, 1))
	must(t, err)
	found := look(t, Options{Host: "10.1.0.2", Transport: Landing, Root: nic("25000")})
	expect(t, found["path-route"], doctor.OK, "10.1.0.2 through way0, from 10.1.0.1")
	expect(t, found["path-ports"], doctor.OK, "the port is open")
	expect(t, found["path-mtu"], doctor.OK, "packets of 9000 bytes reach the host")
	expect(t, found["path-ends"], doctor.OK, "MTU 9000 on this machine (way0), 9000 on the host (TCP handshake)")
	expect(t, found["path-jumbo"], doctor.OK, "")
	expect(t, found["path-link"], doctor.OK, "eth0: 25000 Mbit/s, MTU 9000")
	expect(t, found["path-landing"], doctor.OK, "the port is free")
	found = look(t, Options{Host: "10.1.0.2", Transport: Landing, Root: nic("25000"), MayListen: func(port int) bool { return port != 111 }})
	expect(t, found["path-landing"], doctor.Failure, "this process may not listen on the port")
	slow := look(t, Options{Host: "10.1.0.2", Transport: HTTPS, Root: nic("1000")})
	expect(t, slow["path-jumbo"], doctor.Advice, "MTU 9000 with --transport https")

	// The kernel decides how many segments it sends again and how long a round trip takes, also on this link.
	// TestLossIsJudged tests what is reported of the former. The round trip may take 25 ms at 1 Gbit/s.
	tcp := slices.Clone(slow["path-tcp"])
	slices.SortFunc(tcp, func(a, b doctor.Finding) int { return strings.Compare(a.Found, b.Found) }) // connections precede the round-trip time
	if len(tcp) != 2 || !strings.HasPrefix(tcp[0].Found, "connections with data: 1 (4 MB); ") {
		t.Fatalf("no word of what was carried: %+v", tcp)
	}
	expect(t, tcp[1:], doctor.OK, "packets of 9000 bytes; buffers of 6144 KiB suffice for the link")
}

// A switch between two ends that mean different sizes drops what is too large, without a word.
func TestBlackHole(t *testing.T) {
	if !inside(t) {
		return
	}
	straight(t, 9000, 1500)
	listen(t, 443)
	found := look(t, Options{Host: "10.1.0.2", Root: nic("1000")})
	expect(t, found["path-mtu"], doctor.Failure, "packets of up to 1500 bytes arrive; packets of 1600, 2000, 4000, 4074, 8000, 8900, 8950, 8996, 9000 bytes are lost without an error, so connections stall (MTU black hole)")
	expect(t, found["path-ends"], doctor.Warning, "MTU 9000 on this machine (way0), 1500 on the host (TCP handshake)")
	expect(t, found["path-link"], doctor.Advice, "1000 Mbit/s")
	expect(t, found["path-ports"], doctor.Advice, "the port is closed")
	if len(found["path-jumbo"]) > 0 {
		t.Errorf("advice about jumbo frames over a black hole: %+v", found["path-jumbo"])
	}
}

func TestRouterSaysWhatItTakes(t *testing.T) {
	if !inside(t) {
		return
	}
	routed(t, 9000, 1400)
	found := look(t, Options{Host: "10.2.0.2", HostMTU: 1400, Transport: NFC, Root: nic("100")})
	expect(t, found["path-mtu"], doctor.Advice, "10.1.0.2 limits packets to 1400 bytes")
	expect(t, found["path-ends"], doctor.Warning, "MTU 9000 on this machine (way0), 1400 on the host (vmknic)")
	expect(t, found["path-link"], doctor.Warning, "100 Mbit/s")
	expect(t, found["path-ports"], doctor.Failure, "the port is closed")
}

// A host whose answers are dropped, ports that somebody has.
func TestSilenceAndTakenPorts(t *testing.T) {
	if !inside(t) {
		return
	}
	straight(t, 1500, 1500)
	ip(t, "-n host route add blackhole 10.1.0.1/32")
	l, err := net.Listen("tcp4", "127.0.0.1:2049")
	must(t, err)
	defer l.Close()
	found := look(t, Options{Host: "10.1.0.2", Transport: Landing, Root: nic("10000")})
	expect(t, found["path-ports"], doctor.Failure, "no answer: a firewall")
	expect(t, found["path-mtu"], doctor.Unknown, "10.1.0.2 does not answer echo requests")
	if len(found["path-tcp"]) > 0 {
		t.Errorf("a host that does not answer has connections: %+v", found["path-tcp"])
	}
	expect(t, found["path-landing"], doctor.Failure, "the port is in use by path.test (process ")
}
