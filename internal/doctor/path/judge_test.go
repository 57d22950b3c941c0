package path

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/doctor"
)

func TestLossIsJudged(t *testing.T) {
	w := route{iface: net.Interface{Name: "eth0"}}
	for _, v := range []struct {
		t      traffic
		status doctor.Status
	}{
		{traffic{connections: 8, sent: 1e6, received: 1e6, again: 10, disordered: 1000}, doctor.OK},
		{traffic{connections: 8, sent: 1e6, again: 2000}, doctor.Warning},
		{traffic{connections: 8, received: 1e6, disordered: 2000}, doctor.Warning},
		{traffic{connections: 1, sent: 100, again: 9}, doctor.OK}, // too few to say anything
	} {
		if f := judgeLoss(w, v.t); f.Status != v.status || (f.Status != doctor.OK) != strings.Contains(f.Remedy, "ethtool -S eth0") {
			t.Errorf("%+v: %+v", v.t, f)
		}
	}
}

func TestWindowIsJudged(t *testing.T) {
	const buffer = 6 << 20
	for _, v := range []struct {
		rtt    time.Duration
		mbits  int
		status doctor.Status
		seen   string
	}{
		{200 * time.Microsecond, 25000, doctor.OK, "round-trip time 200µs"},
		{10 * time.Millisecond, 10000, doctor.Advice, "buffers of 6144 KiB limit a connection to 315 MB/s"},
		{10 * time.Millisecond, 0, doctor.OK, "suffice for the link"}, // taken for 1 GbE
		{0, 1000, doctor.OK, "too short"},
	} {
		f := judgeWindow(traffic{rtt: v.rtt}, buffer, v.mbits)
		if f.Status != v.status || !strings.Contains(f.Found, v.seen) {
			t.Errorf("%v at %d Mbit/s: %+v", v.rtt, v.mbits, f)
		}
		if f.Status == doctor.Advice && !strings.Contains(f.Remedy, "tcp_rmem='4096 131072 25000000'") {
			t.Errorf("remedy %q", f.Remedy)
		}
	}
}

// What is lost now and then is not a black hole; what is lost above some size always, is.
func TestFramesAreJudged(t *testing.T) {
	w := route{from: netip.MustParseAddr("10.0.0.1"), to: netip.MustParseAddr("10.0.0.2"), iface: net.Interface{Name: "eth0", MTU: 9000}}
	for _, v := range []struct {
		f      frameResults
		status doctor.Status
		remedy string
	}{
		{frameResults{answered: []int{576, 1500, 9000}, lost: []int{4000}}, doctor.OK, ""},
		{frameResults{answered: []int{576, 1500}, lost: []int{1400, 9000}}, doctor.Failure, "ip link set dev eth0 mtu 1500"},
		{frameResults{answered: []int{576, 1400}, refused: []int{1500, 9000}, refusal: refusal{1400, "10.0.0.9"}}, doctor.Advice, "ip link set dev eth0 mtu 1400"},
		{frameResults{lost: []int{576, 9000}}, doctor.Unknown, "vmkping -d -c 3 -s 8972 10.0.0.1"},
	} {
		if f := judgeFrames(w, v.f); f.Status != v.status || !strings.Contains(f.Remedy, v.remedy) {
			t.Errorf("%+v: %+v", v.f, f)
		}
	}
}

// The advice rests on rows that others measured: NFS gained 1.4 to 4.6 percent, HTTPS lost.
func TestAdviceRestsOnRows(t *testing.T) {
	if least, most := nfsGain(); least < 1 || least > 2 || most < 4 || most > 5 {
		t.Errorf("NFS gains %.1f to %.1f %%", least, most)
	}
	if jumbo, usual := httpsLoss(); jumbo < 106 || jumbo > 163 || usual < 730 || usual > 773 {
		t.Errorf("HTTPS: %.0f with jumbo frames, %.0f without", jumbo, usual)
	}
	if slow, fast := nicEffect(); slow < 90 || slow > 110 || fast < 280 || fast > 300 {
		t.Errorf("1 GbE %.0f, 25 GbE %.0f MiB/s", slow, fast)
	}
}

// To this machine itself there is neither a cable nor a frame.
func TestLoopbackIsNoNetwork(t *testing.T) {
	found := doctor.Examine(t.Context(), Checks(Options{Host: "127.0.0.1", Transport: Landing}), doctor.Options{})
	for _, f := range found {
		if f.Code != "path-route" && f.Code != "path-ports" && f.Code != "path-landing" {
			t.Errorf("%+v", f)
		}
	}
}

func TestHostThatIsUnknown(t *testing.T) {
	found := doctor.Examine(t.Context(), Checks(Options{Host: "host.invalid", Root: fstest.MapFS{}}), doctor.Options{})
	if len(found) != 1 || found[0].Code != "path-route" || found[0].Status != doctor.Failure || !strings.Contains(found[0].Remedy, "getent hosts host.invalid") {
		t.Errorf("%+v", found)
	}
	if found := doctor.Examine(t.Context(), Checks(Options{}), doctor.Options{}); len(found) > 0 {
		t.Errorf("without a host: %+v", found)
	}
}

// A request is answered by turning its type: this has to be one of ours, and to hold its sum.
func TestEchoesAreKnownAgain(t *testing.T) {
	cookie := [cookieSize]byte{1, 2, 3}
	for _, size := range []int{576, 1501, 9000} {
		p := newEcho(size, 7, cookie)
		if len(p) != size-ipHeader || checksum(p) != 0 {
			t.Errorf("%d bytes of %d, sum %#x", len(p), size, checksum(p))
		}
		if _, ok := parseReply(p, false, cookie); ok {
			t.Error("a request counts as an answer")
		}
		p[0] = echoReply
		if n, ok := parseReply(p, false, cookie); !ok || n != 7 {
			t.Errorf("answer %d, %v", n, ok)
		}
		if n, ok := parseReply(append(append([]byte{0x46}, make([]byte, 23)...), p...), true, cookie); !ok || n != 7 {
			t.Errorf("with an IP header of 24 bytes: %d, %v", n, ok)
		}
		if _, ok := parseReply(p, false, [cookieSize]byte{}); ok {
			t.Error("another's answer counts")
		}
	}
}

// message is what the kernel says of a connection, as sock_diag(7) has it.
func message() []byte {
	body := make([]byte, messageSize)
	body[0], body[1] = unix.AF_INET, 1
	binary.BigEndian.PutUint16(body[4:], 5000)
	binary.BigEndian.PutUint16(body[6:], 443)
	copy(body[8:], []byte{10, 0, 0, 1})
	copy(body[24:], []byte{10, 0, 0, 2})
	info := make([]byte, 4+104) // as short as Linux 3's
	binary.NativeEndian.PutUint16(info, uint16(len(info)))
	binary.NativeEndian.PutUint16(info[2:], diagInfo)
	binary.NativeEndian.PutUint32(info[4+68:], 250) // tcpi_rtt
	body = append(body, info...)
	p := make([]byte, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint32(p, uint32(len(p)+len(body)))
	binary.NativeEndian.PutUint16(p[4:], diagByFamily)
	return append(p, body...)
}

func TestKernelsWordOfAConnection(t *testing.T) {
	all, last, err := parseDump(message())
	if err != nil || last || len(all) != 1 {
		t.Fatalf("%v, %v, %v", all, last, err)
	}
	if c := all[0]; c.local.String() != "10.0.0.1:5000" || c.remote.String() != "10.0.0.2:443" || sumTraffic(all).rtt != 250*time.Microsecond {
		t.Errorf("%+v", c)
	}
}

func FuzzDump(f *testing.F) {
	f.Add(message())
	f.Fuzz(func(t *testing.T, p []byte) {
		all, _, _ := parseDump(p)
		if len(all) > len(p) {
			t.Fatalf("%d connections of %d bytes", len(all), len(p))
		}
		sumTraffic(all)
	})
}

func FuzzReply(f *testing.F) {
	p := newEcho(576, 3, [cookieSize]byte{9})
	p[0] = echoReply
	f.Add(p, false)
	f.Add(append(append([]byte{0x45}, make([]byte, 19)...), p...), true)
	f.Fuzz(func(t *testing.T, p []byte, raw bool) {
		if _, ok := parseReply(p, raw, [cookieSize]byte{9}); ok && !bytes.Contains(p, []byte{9, 0, 0, 0, 0, 0, 0, 0}) {
			t.Fatal("an answer without our cookie")
		}
	})
}

func FuzzRefusal(f *testing.F) {
	p := make([]byte, 32)
	binary.NativeEndian.PutUint32(p, 90)
	p[4] = 2
	binary.NativeEndian.PutUint32(p[8:], 1400)
	f.Add(p)
	f.Fuzz(func(t *testing.T, p []byte) {
		if r, ok := parseRefusal(p); ok && (r.mtu < 0 || r.mtu > 65535) {
			t.Fatalf("%+v", r)
		}
	})
}
