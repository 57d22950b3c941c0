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

// ipv4 writes four bytes as an address.
func ipv4(b []byte) string { return netip.AddrFrom4([4]byte(b[:4])).String() }

// frames are the results of packets of several sizes, in bytes with their IP header.
type frames struct {
	answered []int // the smallest first
	lost     []int // sent, and neither answered nor refused
	refused  []int
	refusal  refusal // smallest refusal
}

// sizes are those that are tried up to the MTU of our interface: what links in use have, and the
// steps between.
func sizes(mtu int) (tried []int) {
	// Ethernet, PPPoE, VXLAN in 1500, WireGuard, IPv6's least; 9000 less the same; jumbo of
	// other kinds.
	for _, s := range []int{leastFrame, 1280, 1400, 1420, 1450, 1492, 1500, 1600, 2000, 4000, 4074, 8000, 8900, 8950, 8996, 9000, 9216, 16000, 32000} {
		if s < mtu {
			tried = append(tried, s)
		}
	}
	return append(tried, mtu)
}

// pinger is a socket for echoes.
type pinger struct {
	fd     int
	raw    bool
	to     unix.SockaddrInet4
	cookie [cookieSize]byte
	buf    []byte
}

// newPinger opens one whose packets are not fragmented: one that net.ipv4.ping_group_range allows,
// else a raw one, which is root's.
func newPinger(to netip.Addr) (*pinger, error) {
	p := &pinger{to: unix.SockaddrInet4{Addr: to.As4()}, buf: make([]byte, 1<<16)}
	_, _ = rand.Read(p.cookie[:]) // never fails
	var err error
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

func (p *pinger) close() { _ = unix.Close(p.fd) } // nothing is owed

// probe sends a packet of each size, those without an answer twice, and waits each time.
func (p *pinger) probe(ctx context.Context, tried []int, wait time.Duration) frames {
	var f frames
	for range 2 {
		for i, size := range tried {
			if slices.Contains(f.answered, size) || slices.Contains(f.refused, size) {
				continue
			}
			p.send(&f, size, uint16(i))
		}
		p.hear(ctx, &f, tried, wait)
	}
	for _, size := range tried {
		if !slices.Contains(f.answered, size) && !slices.Contains(f.refused, size) {
			f.lost = append(f.lost, size)
		}
	}
	slices.Sort(f.answered)
	return f
}

// send sends one packet. It may return errors of an earlier packet, which are in the error queue as
// well.
func (p *pinger) send(f *frames, size int, sequence uint16) {
	for range 2 {
		err := unix.Sendto(p.fd, echo(size, sequence, p.cookie), 0, &p.to)
		if err == nil {
			return
		}
		if errors.Is(err, unix.EMSGSIZE) && !p.drain(f) {
			f.refused = append(f.refused, size)
			return
		}
	}
}

// hear takes answers until all that is open has one, or time is up.
func (p *pinger) hear(ctx context.Context, f *frames, tried []int, wait time.Duration) {
	for end := time.Now().Add(wait); time.Now().Before(end) && ctx.Err() == nil; {
		if len(f.answered)+len(f.refused) >= len(tried) {
			return
		}
		n, _, err := unix.Recvfrom(p.fd, p.buf, 0)
		if err != nil {
			p.drain(f)
			p.apply(f, tried)
			continue
		}
		if i, ok := parseReply(p.buf[:n], p.raw, p.cookie); ok && int(i) < len(tried) && !slices.Contains(f.answered, tried[i]) {
			f.answered = append(f.answered, tried[i])
		}
	}
}

// drain reads the error queue, and reports whether a refusal was there.
func (p *pinger) drain(f *frames) (any bool) {
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

// apply counts packets as refused that are larger than a router's limit.
func (p *pinger) apply(f *frames, tried []int) {
	for _, size := range tried {
		if f.refusal.mtu > 0 && size > f.refusal.mtu && !slices.Contains(f.refused, size) && !slices.Contains(f.answered, size) {
			f.refused = append(f.refused, size)
		}
	}
}

// probeFrames tries what gets to an address and back.
func probeFrames(ctx context.Context, to netip.Addr, mtu int, wait time.Duration) (frames, error) {
	if !to.Is4() {
		return frames{}, fmt.Errorf("%s: frames are tried over IPv4 only", to)
	}
	const most = 65535 // maximum bytes of an IP packet; loopback's MTU is larger
	p, err := newPinger(to)
	if err != nil {
		return frames{}, err
	}
	defer p.close()
	return p.probe(ctx, sizes(min(mtu, most)), wait), nil
}
