package path

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// ipv4 formats the first four bytes as an address.
func ipv4(b []byte) string { return netip.AddrFrom4([4]byte(b[:4])).String() }

// frameResults contains the results for packets of several sizes. Sizes are bytes,
// including the IP header.
type frameResults struct {
	answered []int   // sizes with a reply, ascending
	lost     []int   // sizes with neither reply nor refusal
	refused  []int   // sizes that the interface or a router refused
	refusal  refusal // refusal with the smallest limit
}

// sizesUpTo returns the sizes to try, up to the MTU of the interface: the MTUs of
// common links, and some values between them.
func sizesUpTo(mtu int) (tried []int) {
	// Ethernet, PPPoE, VXLAN in 1500, WireGuard, IPv6's least; 9000 less the same;
	// jumbo of other kinds.
	for _, s := range []int{leastFrame, 1280, 1400, 1420, 1450, 1492, 1500, 1600, 2000, 4000, 4074, 8000, 8900, 8950, 8996, 9000, 9216, 16000, 32000} {
		if s < mtu {
			tried = append(tried, s)
		}
	}
	return append(tried, mtu)
}

// pinger is a socket for echo requests.
type pinger struct {
	fd     int                // file descriptor
	raw    bool               // true for a raw socket, whose packets start with the IP header
	to     unix.SockaddrInet4 // destination
	cookie [cookieSize]byte   // random bytes that identify our replies
	buf    []byte             // buffer for received packets
}

// newPinger opens a socket that does not fragment packets. It prefers a datagram
// socket, which net.ipv4.ping_group_range permits, to a raw socket, which requires
// root.
func newPinger(to netip.Addr) (*pinger, error) {
	p := &pinger{to: unix.SockaddrInet4{Addr: to.As4()}, buf: make([]byte, 1<<16)}
	_, _ = rand.Read(p.cookie[:]) // never fails
	var err error
	// The datagram socket needs no privileges if the group is permitted.
	for _, kind := range []int{unix.SOCK_DGRAM, unix.SOCK_RAW} {
		p.raw = kind == unix.SOCK_RAW
		if p.fd, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP); err == nil {
			break
		}
	}
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	const (
		tick   = 20_000  // microseconds between looks at the clock
		buffer = 1 << 20 // bytes: all answers may come at once
	)
	_ = unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer) // packets that do not fit are sent again
	err = errors.Join(
		unix.SetsockoptInt(p.fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE),
		unix.SetsockoptInt(p.fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1),
		unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: tick}),
	)
	if err != nil {
		p.close()
		return nil, os.NewSyscallError("setsockopt", err)
	}
	return p, nil
}

// close closes the socket.
func (p *pinger) close() { _ = unix.Close(p.fd) } // nothing is owed

// sendAll sends a packet of each size and waits for replies. It sends the sizes without
// an answer a second time.
func (p *pinger) sendAll(ctx context.Context, tried []int, wait time.Duration) frameResults {
	var f frameResults
	for range 2 {
		for i, size := range tried {
			if slices.Contains(f.answered, size) || slices.Contains(f.refused, size) {
				continue
			}
			p.sendOne(&f, size, uint16(i))
		}
		p.receive(ctx, &f, tried, wait)
	}
	for _, size := range tried {
		if !slices.Contains(f.answered, size) && !slices.Contains(f.refused, size) {
			f.lost = append(f.lost, size)
		}
	}
	slices.Sort(f.answered)
	return f
}

// sendOne sends one packet. Sendto may return the error of an earlier packet; that
// error is also in the error queue, so sendOne tries twice.
func (p *pinger) sendOne(f *frameResults, size int, sequence uint16) {
	for range 2 {
		err := unix.Sendto(p.fd, newEcho(size, sequence, p.cookie), 0, &p.to)
		if err == nil {
			return
		}
		// Without a router's report in the queue, the local interface refused the
		// packet.
		if errors.Is(err, unix.EMSGSIZE) && !p.drainErrors(f) {
			f.refused = append(f.refused, size)
			return
		}
	}
}

// receive reads replies until each size has an answer, or wait has passed.
func (p *pinger) receive(ctx context.Context, f *frameResults, tried []int, wait time.Duration) {
	for end := time.Now().Add(wait); time.Now().Before(end) && ctx.Err() == nil; {
		if len(f.answered)+len(f.refused) >= len(tried) {
			return
		}
		n, _, err := unix.Recvfrom(p.fd, p.buf, 0)
		if err != nil {
			p.drainErrors(f)
			p.applyRefusal(f, tried)
			continue
		}
		if i, ok := parseReply(p.buf[:n], p.raw, p.cookie); ok && int(i) < len(tried) && !slices.Contains(f.answered, tried[i]) {
			f.answered = append(f.answered, tried[i])
		}
	}
}

// drainErrors reads the error queue, and reports whether it contained a refusal by a
// router.
func (p *pinger) drainErrors(f *frameResults) (any bool) {
	var control [512]byte
	for {
		_, n, _, _, err := unix.Recvmsg(p.fd, p.buf, control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			return any
		}
		messages, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil {
			continue
		}
		for _, m := range messages {
			if r, ok := parseRefusal(m.Data); ok && r.by != "" {
				any = true
				if f.refusal.mtu == 0 || r.mtu < f.refusal.mtu {
					f.refusal = r
				}
			}
		}
	}
}

// applyRefusal marks sizes above a router's limit as refused.
func (p *pinger) applyRefusal(f *frameResults, tried []int) {
	for _, size := range tried {
		if f.refusal.mtu > 0 && size > f.refusal.mtu && !slices.Contains(f.refused, size) && !slices.Contains(f.answered, size) {
			f.refused = append(f.refused, size)
		}
	}
}

// probeFrames tests which sizes reach an IPv4 address and return. wait is the limit of
// each of two rounds.
func probeFrames(ctx context.Context, to netip.Addr, mtu int, wait time.Duration) (frameResults, error) {
	if !to.Is4() {
		return frameResults{}, fmt.Errorf("%s: this test supports only IPv4", to)
	}
	// The sizes include the IP header.
	const most = 65535 // maximum bytes of an IP packet; loopback's MTU is larger
	p, err := newPinger(to)
	if err != nil {
		return frameResults{}, err
	}
	defer p.close()
	return p.sendAll(ctx, sizesUpTo(min(mtu, most)), wait), nil
}
