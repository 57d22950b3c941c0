package path

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/doctor"
)

func TestPacketLossIsRated(t *testing.T) {
	w := route{iface: net.Interface{Name: "eth0"}}
	for _, v := range []struct {
		t      traffic
		status doctor.Status
	}{
		{traffic{connections: 8, sent: 1e6, received: 1e6, again: 10, disordered: 1000}, doctor.OK},
		{traffic{connections: 8, sent: 1e6, again: 2000}, doctor.Warning},
		{traffic{connections: 8, received: 1e6, disordered: 2000}, doctor.Warning},
		{traffic{connections: 1, sent: 100, again: 9}, doctor.OK}, // too few segments to judge
	} {
		if f := judgeLoss(w, v.t); f.Status != v.status || (f.Status != doctor.OK) != strings.Contains(f.Remedy, "ethtool -S eth0") {
			t.Errorf("%+v: got finding %+v", v.t, f)
		}
	}
}

func TestJudgeWindow(t *testing.T) {
	const buffer = 6 << 20
	for _, v := range []struct {
		rtt    time.Duration
		mbits  int
		status doctor.Status
		found  string
	}{
		{200 * time.Microsecond, 25000, doctor.OK, "round-trip time 200µs"},
		{10 * time.Millisecond, 10000, doctor.Advice, "buffers of 6144 KiB limit a connection to 315 MB/s"},
		{10 * time.Millisecond, 0, doctor.OK, "suffice for the link"}, // unknown speed counts as 1 GbE
		{0, 1000, doctor.OK, "too short"},
	} {
		f := judgeWindow(traffic{rtt: v.rtt}, buffer, v.mbits)
		if f.Status != v.status || !strings.Contains(f.Found, v.found) {
			t.Errorf("%v at %d Mbit/s: got finding %+v", v.rtt, v.mbits, f)
		}
		if f.Status == doctor.Advice && !strings.Contains(f.Remedy, "tcp_rmem='4096 131072 25000000'") {
			t.Errorf("got remedy %q", f.Remedy)
		}
	}
}

// The loss of a packet size is a black hole only if no larger packets arrive.
func TestJudgeFrames(t *testing.T) {
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
			t.Errorf("%+v: got finding %+v", v.f, f)
		}
	}
}

// The advice is based on published measurements: jumbo frames make NFS 1.4 to 4.6 percent faster, and HTTPS slower.
func TestAdviceMatchesMeasurements(t *testing.T) {
	if least, most := nfsGain(); least < 1 || least > 2 || most < 4 || most > 5 {
		t.Errorf("got NFS gains of %.1f to %.1f %%", least, most)
	}
	if jumbo, usual := httpsLoss(); jumbo < 106 || jumbo > 163 || usual < 730 || usual > 773 {
		t.Errorf("HTTPS: got %.0f MiB/s with jumbo frames, %.0f without", jumbo, usual)
	}
	if slow, fast := nicEffect(); slow < 90 || slow > 110 || fast < 280 || fast > 300 {
		t.Errorf("got %.0f MiB/s with 1 GbE, %.0f with 25 GbE", slow, fast)
	}
}

// The checks of loopback do not examine links and frames.
func TestLoopbackHasFewChecks(t *testing.T) {
	found := doctor.Examine(t.Context(), Checks(Options{Host: "127.0.0.1", Transport: Landing}), doctor.Options{})
	var codes []string
	for _, f := range found {
		codes = append(codes, f.Code)
	}
	slices.Sort(codes)
	if want := []string{"path-landing", "path-landing", "path-ports", "path-route"}; !slices.Equal(codes, want) {
		t.Errorf("got findings %+v, want the codes %q", found, want)
	}
}

func TestUnknownHost(t *testing.T) {
	found := doctor.Examine(t.Context(), Checks(Options{Host: "host.invalid", Root: fstest.MapFS{}}), doctor.Options{})
	if len(found) != 1 || found[0].Code != "path-route" || found[0].Status != doctor.Failure || !strings.Contains(found[0].Remedy, "getent hosts host.invalid") {
		t.Errorf("got findings %+v", found)
	}
	if found := doctor.Examine(t.Context(), Checks(Options{}), doctor.Options{}); len(found) > 0 {
		t.Errorf("without a host: got findings %+v", found)
	}
}

// A reply is an echo request with another type. parseReply accepts only replies with our cookie.
func TestParseEchoReply(t *testing.T) {
	cookie := [cookieSize]byte{1, 2, 3}
	for _, size := range []int{576, 1501, 9000} {
		p := newEcho(size, 7, cookie)
		if len(p) != size-ipHeader || checksum(p) != 0 {
			t.Errorf("got %d bytes of %d, checksum %#x", len(p), size, checksum(p))
		}
		if _, ok := parseReply(p, false, cookie); ok {
			t.Error("a request is accepted as a reply")
		}
		p[0] = echoReply
		if n, ok := parseReply(p, false, cookie); !ok || n != 7 {
			t.Errorf("got reply %d, %v", n, ok)
		}
		if n, ok := parseReply(append(append([]byte{0x46}, make([]byte, 23)...), p...), true, cookie); !ok || n != 7 {
			t.Errorf("with an IP header of 24 bytes: got reply %d, %v", n, ok)
		}
		if _, ok := parseReply(p, false, [cookieSize]byte{}); ok {
			t.Error("a reply with another cookie is accepted")
		}
	}
}

// diagMessage returns a message of the kernel about a connection, in the format of sock_diag(7).
func diagMessage() []byte {
	body := make([]byte, messageSize)
	body[0], body[1] = unix.AF_INET, 1
	binary.BigEndian.PutUint16(body[4:], 5000)
	binary.BigEndian.PutUint16(body[6:], 443)
	copy(body[8:], []byte{10, 0, 0, 1})
	copy(body[24:], []byte{10, 0, 0, 2})
	info := make([]byte, 4+104) // the length in Linux 3
	binary.NativeEndian.PutUint16(info, uint16(len(info)))
	binary.NativeEndian.PutUint16(info[2:], diagInfo)
	binary.NativeEndian.PutUint32(info[4+68:], 250) // tcpi_rtt
	body = append(body, info...)
	p := make([]byte, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint32(p, uint32(len(p)+len(body)))
	binary.NativeEndian.PutUint16(p[4:], diagByFamily)
	return append(p, body...)
}

func TestParseDump(t *testing.T) {
	all, last, err := parseDump(diagMessage())
	if err != nil || last || len(all) != 1 {
		t.Fatalf("got connections %v, last %v, %v", all, last, err)
	}
	if c := all[0]; c.local.String() != "10.0.0.1:5000" || c.remote.String() != "10.0.0.2:443" || sumTraffic(all).rtt != 250*time.Microsecond {
		t.Errorf("got connection %+v", c)
	}
}

func FuzzDump(f *testing.F) {
	f.Add(diagMessage())
	f.Fuzz(func(t *testing.T, p []byte) {
		all, _, _ := parseDump(p)
		if len(all) > len(p) {
			t.Fatalf("got %d connections of %d bytes", len(all), len(p))
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
			t.Fatal("a reply without our cookie is accepted")
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
			t.Fatalf("got refusal %+v", r)
		}
	})
}
