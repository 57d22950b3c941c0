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

// A traffic is what the connections to a host come to.
type traffic struct {
	connections int           // connections that carried data
	bytes       uint64        // both ways
	sent        uint64        // segments with data
	again       uint64        // retransmitted segments
	received    uint64        // segments with data
	disordered  uint64        // segments that came after a lost one, or late
	rtt         time.Duration // the least
	frame       int           // bytes of the largest packet, according to the handshake of the last connection
}

// sum adds connections up.
func sum(all []connection) (t traffic) {
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

// shakeHands connects, and returns the largest packet that the host takes as far as we can send
// it, in bytes; 0 where it does not answer.
func (e *examiner) shakeHands(ctx context.Context, w way) int {
	d := net.Dialer{Timeout: dialWait}
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(e.Host, strconv.Itoa(e.Port)))
	if err != nil {
		return 0
	}
	defer c.Close()             // nothing is owed
	all, _ := connections(w.to) // none: nothing is known
	for _, each := range all {
		if each.local.String() == c.LocalAddr().String() {
			return sum([]connection{each}).frame
		}
	}
	return 0
}

// tcp looks at the connections there are; one is made, so that there is one.
func (e *examiner) tcp(ctx context.Context) []doctor.Finding {
	w, out := e.beyond(ctx)
	if !out {
		return nil
	}
	d := net.Dialer{Timeout: dialWait}
	if c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(e.Host, strconv.Itoa(e.Port))); err == nil {
		defer c.Close() // nothing is owed
	}
	all, err := connections(w.to)
	if err != nil || len(all) == 0 {
		seen := "there is no connection to the host"
		if err != nil {
			seen = err.Error()
		}
		return []doctor.Finding{{Status: doctor.Unknown, Seen: seen, Want: "a connection to look at", Remedy: "ss -ti dst " + w.to.String()}}
	}
	mbits := lookLink(e.Root, w.iface.Name, 0).mbits
	t := sum(all)
	found := []doctor.Finding{judgeWindow(t, receiveMost(e.Root), mbits)}
	if t.connections > 0 {
		found = append(found, judgeLoss(w, t))
	}
	return found
}

// tooMany is the part of segments from which losses cost: TCP's rate falls with the square root
// of it, and at 1 in 1000 ten Gbit/s are out of reach at any distance.
const tooMany = 1e-3

// enough is the number of bad segments from which they are reported.
const enough = 10

func judgeLoss(w way, t traffic) doctor.Finding {
	f := doctor.Finding{Want: "less than one in a thousand"}
	f.Seen = fmt.Sprintf("connections that carried data: %d, %d MB: %d of %d segments sent again, %d of %d came late or after a lost one",
		t.connections, t.bytes/1e6, t.again, t.sent, t.disordered, t.received)
	bad := func(n, of uint64) bool { return n >= enough && float64(n) > tooMany*float64(of) }
	if bad(t.again, t.sent) || bad(t.disordered, t.received) {
		f.Status = doctor.Warning
		f.Remedy = fmt.Sprintf("ip -s -s link show %s; ethtool -S %s | grep -iE 'err|drop|crc|miss'   # and the same counters at the switch", w.iface.Name, w.iface.Name)
	}
	return f
}

// judgeWindow returns the maximum rate of one connection: the bytes in flight, divided by the
// round-trip time. Half of the buffer counts, because of the kernel's overhead.
func judgeWindow(t traffic, buffer int64, mbits int) doctor.Finding {
	if t.rtt == 0 || buffer == 0 {
		return doctor.Finding{Seen: "the round trip is too short to measure"}
	}
	allows := float64(buffer) / 2 / t.rtt.Seconds() // bytes a second
	link := float64(max(mbits, gigabit)) * 1e6 / 8
	f := doctor.Finding{Seen: fmt.Sprintf("%v there and back, packets of %d bytes; buffers of %d KiB are enough for the link", t.rtt, t.frame, buffer>>10)}
	if allows < link {
		need := int64(2 * link * t.rtt.Seconds())
		f.Status, f.Want = doctor.Advice, fmt.Sprintf("buffers of %d KiB, for the %.0f MB/s of the link", need>>10, link/1e6)
		f.Seen = fmt.Sprintf("%v there and back: buffers of %d KiB allow %.0f MB/s a connection", t.rtt, buffer>>10, allows/1e6)
		f.Remedy = fmt.Sprintf("sysctl -w net.ipv4.tcp_rmem='4096 131072 %d' net.ipv4.tcp_wmem='4096 16384 %d'", need, need)
	}
	return f
}

// receiveMost is how far the kernel lets a connection's receive buffer grow, in bytes; 0 where it
// does not tell.
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
