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

// arrivals counts connections to the server's ports. A host reports a closed firewall, a wrong address
// and a wrong path by the same error; the counts separate these cases. It is safe for concurrent use.
type arrivals struct {
	mu      sync.Mutex   // guards the fields below
	mapper  int          // connections to the port mapper
	nfs     int          // connections to NFS
	refused []netip.Addr // addresses that were not admitted, each once, at most maxRefused
}

// maxRefused bounds the memory that a port scan can use.
const maxRefused = 16

// reset sets all counts to zero.
func (w *arrivals) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mapper, w.nfs, w.refused = 0, 0, nil
}

// addRefused records an address that was not admitted, and reports whether it is new.
func (w *arrivals) addRefused(addr netip.Addr) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.refused, addr) || len(w.refused) == maxRefused {
		return false
	}
	w.refused = append(w.refused, addr)
	return true
}

// countConn increments n, which is a field of w.
func (w *arrivals) countConn(n *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*n++
}

// snapshot returns the counts since reset.
func (w *arrivals) snapshot() (mapper, nfs int, refused []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mapper, w.nfs, slices.Clone(w.refused)
}

// countingListener is a listener that counts its connections.
type countingListener struct {
	net.Listener
	arrivals *arrivals // owner of n
	n        *int      // counter in arrivals
}

// Accept is part of net.Listener.
func (d *countingListener) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err == nil {
		d.arrivals.countConn(d.n)
	}
	return c, err
}

// explainMountError adds to a host's mount error the cause that the arrivals show, with a remedy. us is
// our address for the host; from are the host's addresses. It returns err if they show none.
func (s *nfsServer) explainMountError(err error, host inventory.MoRef, us string, from []netip.Addr) error {
	mapper, calls, refused := s.arrivals.snapshot()
	switch {
	case len(refused) > 0:
		return fault.New(fault.Denied, "%w; a connection came from %s, which is not an address of host %s (%s)",
			err, joinAddrs(refused), host, joinAddrs(from)).
			WithHint("if that is the host, behind NAT or by another interface, allow it: --landing-allow %s", refused[0])
	case !fault.Is(err, fault.Unreachable) && !fault.Is(err, fault.NotFound):
		return err
	case s.mapped && mapper == 0:
		return fault.New(fault.Unreachable, "%w; no packet of the host arrived at this machine", err).
			WithHint("the host cannot reach %s on TCP 111: test it there with nc -z %s 111; open 111 and 2049 in the firewalls between the host "+
				"and this machine (firewall-cmd --add-service=rpc-bind --add-service=nfs; ufw allow 111,2049/tcp), "+
				"or set an address of this machine that the host can reach: --advertise IP", us, us)
	case calls == 0:
		return fault.New(fault.Unreachable, "%w; the host requested the NFS port from the port mapper, but did not connect to it", err).
			WithHint("a firewall drops TCP %d: open it on the network or on this machine (firewall-cmd --add-service=nfs; ufw allow 2049/tcp), and test on the host: nc -z %s %d",
				s.port, us, s.port)
	}
	return err
}

// joinAddrs returns the addresses as text, separated by commas.
func joinAddrs(list []netip.Addr) string {
	var out []string
	for _, a := range list {
		out = append(out, fmt.Sprint(a))
	}
	return strings.Join(out, ", ")
}
