package path

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/doctor"
)

// A traffic contains the sums over connections to a host.
type traffic struct {
	connections int           // connections that carried data
	bytes       uint64        // bytes in both directions
	sent        uint64        // data segments sent
	again       uint64        // segments retransmitted
	received    uint64        // data segments received
	disordered  uint64        // received segments that were out of order
	rtt         time.Duration // smallest round-trip time; 0 if unknown
	frame       int           // bytes of the largest packet, according to the handshake of the last connection
}

// sumTraffic adds the statistics of connections.
func sumTraffic(all []connection) (t traffic) {
	for _, c := range all {
		i := c.info
		if i.Data_segs_in+i.Data_segs_out > 0 {
			t.connections++
		}
		t.bytes += i.Bytes_received + i.Bytes_acked
		t.sent, t.again = t.sent+uint64(i.Data_segs_out), t.again+uint64(i.Total_retrans)
		t.received, t.disordered = t.received+uint64(i.Data_segs_in), t.disordered+uint64(i.Rcv_ooopack)
		rtt := time.Duration(i.Rtt) * time.Microsecond
		if i.Min_rtt > 0 && i.Min_rtt < i.Rtt {
			rtt = time.Duration(i.Min_rtt) * time.Microsecond
		}
		if rtt > 0 && (t.rtt == 0 || rtt < t.rtt) {
			t.rtt = rtt
		}
		const ip, tcp, stamps, hasStamps = 20, 20, 12, 1 // TCPI_OPT_TIMESTAMPS
		t.frame = int(i.Snd_mss) + ip + tcp
		if i.Options&hasStamps != 0 {
			t.frame += stamps
		}
	}
	return t
}

// shakeHands connects to the host, and returns the largest packet that both ends
// permit, in bytes. It returns 0 if the host does not answer.
func (e *examiner) shakeHands(ctx context.Context, w route) int {
	d := net.Dialer{Timeout: dialWait}
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(e.Host, strconv.Itoa(e.Port)))
	if err != nil {
		return 0
	}
	defer c.Close()               // nothing is owed
	all, _ := establishedTo(w.to) // none: nothing is known
	for _, each := range all {
		if each.local.String() == c.LocalAddr().String() {
			return sumTraffic([]connection{each}).frame
		}
	}
	return 0
}

// checkTCP examines the connections to the host. It opens one, so that there is at
// least one.
func (e *examiner) checkTCP(ctx context.Context) []doctor.Finding {
	w, out := e.remoteRoute(ctx)
	if !out {
		return nil
	}
	d := net.Dialer{Timeout: dialWait}
	if c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(e.Host, strconv.Itoa(e.Port))); err == nil {
		defer c.Close() // nothing is owed
	}
	all, err := establishedTo(w.to)
	if err != nil || len(all) == 0 {
		seen := "no connection to the host"
		if err != nil {
			seen = err.Error()
		}
		return []doctor.Finding{{Status: doctor.Unknown, Found: seen, Want: "a TCP connection to the host", Remedy: "ss -ti dst " + w.to.String()}}
	}
	mbits := readLink(e.Root, w.iface.Name, 0).mbits
	t := sumTraffic(all)
	found := []doctor.Finding{judgeWindow(t, receiveMost(e.Root), mbits)}
	if t.connections > 0 {
		found = append(found, judgeLoss(w, t))
	}
	return found
}

// lossLimit is the share of lost segments that is reported. TCP's rate falls with its
// square root: with 1 in 1000, 10 Gbit/s cannot be reached at any distance.
const lossLimit = 1e-3

// minLosses is the smallest number of losses to report.
const minLosses = 10

// judgeLoss returns the finding about retransmitted and disordered segments.
func judgeLoss(w route, t traffic) doctor.Finding {
	f := doctor.Finding{Want: "less than one lost or late segment in a thousand"}
	f.Found = fmt.Sprintf("connections with data: %d (%d MB); %d of %d segments were retransmitted, %d of %d arrived out of order",
		t.connections, t.bytes/1e6, t.again, t.sent, t.disordered, t.received)
	// A few losses on a short connection are not significant.
	bad := func(n, of uint64) bool { return n >= minLosses && float64(n) > lossLimit*float64(of) }
	if bad(t.again, t.sent) || bad(t.disordered, t.received) {
		f.Status = doctor.Warning
		f.Remedy = fmt.Sprintf("# also check the counters of the switch:\nip -s -s link show %s; ethtool -S %s | grep -iE 'err|drop|crc|miss'", w.iface.Name, w.iface.Name)
	}
	return f
}

// judgeWindow compares the largest rate of one connection with the link. The rate is
// the buffer size divided by the round-trip time. Half of the buffer counts, because
// the kernel uses the rest for overhead.
func judgeWindow(t traffic, buffer int64, mbits int) doctor.Finding {
	if t.rtt == 0 || buffer == 0 {
		return doctor.Finding{Found: "the round-trip time is too short to measure"}
	}
	// At most one buffer is in flight per round trip.
	allows := float64(buffer) / 2 / t.rtt.Seconds() // bytes a second
	link := float64(max(mbits, gigabit)) * 1e6 / 8
	f := doctor.Finding{Found: fmt.Sprintf("round-trip time %v, packets of %d bytes; buffers of %d KiB suffice for the link", t.rtt, t.frame, buffer>>10)}
	if allows < link {
		need := int64(2 * link * t.rtt.Seconds())
		f.Status, f.Want = doctor.Advice, fmt.Sprintf("buffers of %d KiB, for the %.0f MB/s of the link", need>>10, link/1e6)
		f.Found = fmt.Sprintf("round-trip time %v; buffers of %d KiB limit a connection to %.0f MB/s", t.rtt, buffer>>10, allows/1e6)
		f.Remedy = fmt.Sprintf("sysctl -w net.ipv4.tcp_rmem='4096 131072 %d' net.ipv4.tcp_wmem='4096 16384 %d'", need, need)
	}
	return f
}

// receiveMost returns the largest receive buffer of a connection (tcp_rmem), in bytes.
// It returns 0 if it cannot be read.
func receiveMost(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/sys/net/ipv4/tcp_rmem")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
