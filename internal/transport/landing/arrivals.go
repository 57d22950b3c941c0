package landing

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// witness sees who knocks at which port. What a host says when it cannot mount fits a
// firewall, a wrong address and a wrong path alike; what arrived here tells them apart.
type arrivals struct {
	mu      sync.Mutex
	mapper  int // connections to the port mapper
	nfs     int
	refused []netip.Addr // not admitted, each once, the first few
}

// maxRefused bounds what a port scan may leave behind.
const maxRefused = 16

// reset forgets what was before.
func (w *arrivals) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mapper, w.nfs, w.refused = 0, 0, nil
}

// addRefused reports whether addr is news.
func (w *arrivals) addRefused(addr netip.Addr) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.refused, addr) || len(w.refused) == maxRefused {
		return false
	}
	w.refused = append(w.refused, addr)
	return true
}

func (w *arrivals) countConn(n *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*n++
}

// snapshot returns what arrived since began.
func (w *arrivals) snapshot() (mapper, nfs int, refused []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mapper, w.nfs, slices.Clone(w.refused)
}

// door is a listener that is watched.
type countingListener struct {
	net.Listener
	arrivals *arrivals
	n        *int
}

// Accept is part of net.Listener.
func (d *countingListener) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err == nil {
		d.arrivals.countConn(d.n)
	}
	return c, err
}

// explainMountError adds to a host's refusal to mount what was seen of it here.
func (s *nfsServer) explainMountError(err error, host inventory.MoRef, us string, from []netip.Addr) error {
	mapper, calls, refused := s.arrivals.snapshot()
	switch {
	case len(refused) > 0:
		return fault.New(fault.Denied, "%w; a connection came from %s, which is none of the addresses of host %s (%s)",
			err, joinAddrs(refused), host, joinAddrs(from)).
			WithHint("if that is the host, behind NAT or by another interface, let it in: --landing-allow %s", refused[0])
	case !fault.Is(err, fault.Unreachable) && !fault.Is(err, fault.NotFound):
		return err
	case s.mapped && mapper == 0:
		return fault.New(fault.Unreachable, "%w; nothing from the host arrived here", err).
			WithHint("the host does not get through to %s on TCP 111: test it there with nc -z %s 111; open 111 and 2049 in the firewalls between "+
				"and here (firewall-cmd --add-service=rpc-bind --add-service=nfs; ufw allow 111,2049/tcp), "+
				"or say which address of this machine it reaches: --advertise IP", us, us)
	case calls == 0:
		return fault.New(fault.Unreachable, "%w; the host asked for the port and did not come to it", err).
			WithHint("a firewall drops TCP %d: open it there or here (firewall-cmd --add-service=nfs; ufw allow 2049/tcp), and test on the host: nc -z %s %d",
				s.port, us, s.port)
	}
	return err
}

func joinAddrs(list []netip.Addr) string {
	var out []string
	for _, a := range list {
		out = append(out, fmt.Sprint(a))
	}
	return strings.Join(out, ", ")
}
