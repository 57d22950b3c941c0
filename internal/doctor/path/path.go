// Package path examines the network between this machine and a host: the link, the
// frame sizes, the ports, and TCP.
//
// # Frames
//
// Echo requests of several sizes that must not be fragmented show which sizes pass in
// both directions. A router reports a frame that is too large for its next link. A
// switch drops it silently, and a TCP connection stalls as soon as it carries data: a
// black hole. ESXi answers echo requests unless that is disabled. Echo requests require
// root, or a group in net.ipv4.ping_group_range; without them the path is not examined.
//
// # Connections
//
// The kernel lists all connections of this machine to the host, of all processes
// (sock_diag). During a migration the retransmissions are those of the migration.
package path

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/doctor/path/firewall"
)

// Transports, by the names that --transport has. What each needs of the network
// differs.
const (
	HTTPS   = "https"   // downloads from port 443
	NFC     = "nfc"     // reads from port 902
	Landing = "landing" // host connects to this machine
)

// Options select the host and the purpose of the path.
type Options struct {
	Host      string // name or address; if empty, nothing is examined
	Port      int    // port of HTTPS; default 443
	Transport string // name of the transport; empty if not chosen yet
	HostMTU   int    // MTU of the vmknic that carries the data, in bytes; 0 if unknown

	// NFC lists the host:port of the NFC servers with the host's disks, in the order of
	// use. The default is NFCPort of Host.
	NFC []string

	Root     fs.FS           // root of /proc and /sys; default this machine's
	Firewall firewall.Runner // runs the tools that list this machine's rules; default firewall.Run

	// MayListen reports whether this process has the permission to listen on a port. The default reads its
	// capabilities.
	MayListen func(port int) bool

	Wait time.Duration // wait for echoes, in each of two rounds; default 1 s
}

// NFCPort is the port of NFC if a ticket contains none.
const NFCPort = 902

const (
	httpsPort   = 443  // default of Options.Port
	nfsPort     = 2049 // port of the landing's NFS server
	portmapPort = 111  // port of the landing's port mapper

	// dialWait limits a connection attempt. A firewall that drops packets does not
	// answer.
	dialWait = 3 * time.Second
)

// withDefaults returns o with defaults for all optional fields.
func (o Options) withDefaults() Options {
	o.Port = cmp.Or(o.Port, httpsPort)
	o.Wait = cmp.Or(o.Wait, time.Second)
	if o.Firewall == nil {
		o.Firewall = firewall.Run
	}
	if o.MayListen == nil {
		o.MayListen = mayListen
	}
	if o.Root == nil {
		o.Root = os.DirFS("/")
	}
	return o
}

// Checks returns the checks of the path to a host. Their codes begin with path-.
func Checks(o Options) []doctor.Check {
	e := &examiner{Options: o.withDefaults()}
	const route, ports, frames = "path-route", "path-ports", "path-mtu"
	of := func(code, title string, run func(context.Context) []doctor.Finding, needs ...string) doctor.Check {
		return doctor.Check{Code: code, Title: title, Needs: needs, Run: func(ctx context.Context) []doctor.Finding {
			if e.Host == "" {
				return nil
			}
			found := run(ctx)
			for i := range found {
				found[i].On = cmp.Or(found[i].On, "host "+e.Host)
			}
			return found
		}}
	}
	return []doctor.Check{
		of(route, "a route to the host exists", e.checkRoute),
		of(ports, "the required ports of the host are open", e.checkPorts, route),
		of(frames, "packets of the interface's MTU reach the host", e.checkFrames, route),
		of("path-ends", "the host and this machine have the same MTU", e.checkEnds, route),
		of("path-jumbo", "the MTU suits the transport", e.checkJumbo, route, frames),
		of("path-link", "the network link is as fast as disks", e.checkLink, route),
		of("path-tcp", "TCP connections to the host have no loss and sufficient buffers", e.checkTCP, route, ports),
		of("path-landing", "the ports of the landing are free", e.checkLanding),
		of("path-firewall", "the firewall of this machine accepts connections of the host to the landing", e.checkInward, route),
	}
}

// An examiner looks up the route once for all checks.
type examiner struct {
	Options
	once sync.Once // runs the look-up
	path route     // route to the host; set by once
	err  error     // error of the look-up; set by once
}

// A route is the local address and interface for packets to a host.
type route struct {
	from, to netip.Addr    // local address and address of the host
	iface    net.Interface // local interface
}

// findRoute returns the route to the host. The first call looks it up.
func (e *examiner) findRoute(ctx context.Context) (route, error) {
	e.once.Do(func() { e.path, e.err = lookUpRoute(ctx, e.Host) })
	return e.path, e.err
}

// remoteRoute returns the route, and whether it leaves this machine. The loopback
// interface has no cables, and an unusual MTU.
func (e *examiner) remoteRoute(ctx context.Context) (route, bool) {
	w, err := e.findRoute(ctx)
	return w, err == nil && w.iface.Flags&net.FlagLoopback == 0
}

// lookUpRoute makes the kernel choose a local address for packets to the host. It sends
// nothing, because it connects a UDP socket.
func lookUpRoute(ctx context.Context, host string) (w route, err error) {
	var d net.Dialer
	const discard = "9" // any port would do
	c, err := d.DialContext(ctx, "udp", net.JoinHostPort(host, discard))
	if err != nil {
		return route{}, err
	}
	defer c.Close()
	w.from, w.to = addrOf(c.LocalAddr()), addrOf(c.RemoteAddr())
	all, err := net.Interfaces()
	if err != nil {
		return route{}, err
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue // the process has ended
		}
		for _, a := range addrs {
			// The interface with the local address of the socket.
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == w.from {
				w.iface = i
				return w, nil
			}
		}
	}
	return route{}, fmt.Errorf("no interface has the local address %s", w.from)
}

// addrOf returns the address of a UDP socket without zone, unmapped.
func addrOf(a net.Addr) netip.Addr {
	if u, ok := a.(*net.UDPAddr); ok {
		return u.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// checkRoute reports a name that cannot be resolved, and an address without a route.
func (e *examiner) checkRoute(ctx context.Context) []doctor.Finding {
	w, err := e.findRoute(ctx)
	if err != nil {
		return []doctor.Finding{{
			Status: doctor.Failure, Found: err.Error(), Want: "a host name that resolves, and a route to its address",
			Remedy: "getent hosts " + e.Host + "; ip route get \"$(getent ahostsv4 " + e.Host + " | awk '{print $1; exit}')\"",
		}}
	}
	return []doctor.Finding{{Found: fmt.Sprintf("%s through %s, from %s", w.to, w.iface.Name, w.from)}}
}
