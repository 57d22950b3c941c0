// Package path examines the network between this machine and a host: the link, the frame sizes, the ports, and
// TCP.
//
// # Frames
//
// Echo requests of several sizes that must not be fragmented show which sizes pass in both directions. A
// router reports a frame that is too large for its next link. A switch drops it silently, and a TCP
// connection stalls as soon as it carries data: a black hole. ESXi answers echo requests unless that is
// disabled. Echo requests require root, or a group in net.ipv4.ping_group_range; without them the path is
// not examined.
//
// # Connections
//
// The kernel lists all connections of this machine to the host, of all processes (sock_diag). During a
// migration the retransmissions are those of the migration.
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

// Transports, by the names that --transport has. What each needs of the network differs.
const (
	HTTPS   = "https"
	NFC     = "nfc"
	Landing = "landing"
)

// Options say where to and what for.
type Options struct {
	Host      string // name or address; "": nothing is looked at
	Port      int    // port of HTTPS; default 443
	Transport string // "": it is not known yet
	HostMTU   int    // MTU of the vmknic that carries the data, in bytes; 0 if unknown

	// NFC is where the host's disks are read over NFC, each host:port, in the order in which they are
	// tried. Default NFCPort of Host.
	NFC []string

	Root     fs.FS           // root of /proc and /sys; default this machine's
	Firewall firewall.Runner // runs the tools that list this machine's rules; default firewall.Run

	Wait time.Duration // wait for echoes, in each of two rounds; default 1 s
}

// NFCPort is where a ticket leads that names no other.
const NFCPort = 902

const (
	httpsPort   = 443
	nfsPort     = 2049
	portmapPort = 111

	// dialWait is how long a port may take: a firewall that drops is silent for longer.
	dialWait = 3 * time.Second
)

func (o Options) withDefaults() Options {
	o.Port = cmp.Or(o.Port, httpsPort)
	o.Wait = cmp.Or(o.Wait, time.Second)
	if o.Firewall == nil {
		o.Firewall = firewall.Run
	}
	if o.Root == nil {
		o.Root = os.DirFS("/")
	}
	return o
}

// Checks returns the checks of the way to a host, their codes beginning with path-.
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
		of(route, "there is a way to the host", e.route),
		of(ports, "the host's ports answer", e.ports, route),
		of(frames, "frames as large as ours get to the host and back", e.frames, route),
		of("path-ends", "both ends have the same MTU", e.ends, route),
		of("path-jumbo", "the MTU is that which the transport gains from", e.jumbo, route, frames),
		of("path-link", "the link is no narrower than disks are fast", e.link, route),
		of("path-tcp", "connections to the host lose nothing, and are not held back by their window", e.tcp, route, ports),
		of("path-landing", "the ports of the landing are free", e.landing),
		of("path-inward", "the firewall here lets the host in to the landing", e.inward, route),
	}
}

// An examiner finds the way once.
type examiner struct {
	Options
	once sync.Once
	way  way
	err  error
}

// A way is how packets leave for a host.
type way struct {
	from, to netip.Addr
	iface    net.Interface
}

// find returns the way.
func (e *examiner) find(ctx context.Context) (way, error) {
	e.once.Do(func() { e.way, e.err = findWay(ctx, e.Host) })
	return e.way, e.err
}

// beyond returns the way, and whether it leaves this machine: the loopback interface has no
// cables, and an MTU that nothing else has.
func (e *examiner) beyond(ctx context.Context) (way, bool) {
	w, err := e.find(ctx)
	return w, err == nil && w.iface.Flags&net.FlagLoopback == 0
}

// findWay lets the kernel choose a local address for packets to the host; none is sent.
func findWay(ctx context.Context, host string) (w way, err error) {
	var d net.Dialer
	const discard = "9" // any port would do
	c, err := d.DialContext(ctx, "udp", net.JoinHostPort(host, discard))
	if err != nil {
		return way{}, err
	}
	defer c.Close()
	w.from, w.to = address(c.LocalAddr()), address(c.RemoteAddr())
	all, err := net.Interfaces()
	if err != nil {
		return way{}, err
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue // the process has ended
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == w.from {
				w.iface = i
				return w, nil
			}
		}
	}
	return way{}, fmt.Errorf("no interface has our address %s", w.from)
}

func address(a net.Addr) netip.Addr {
	if u, ok := a.(*net.UDPAddr); ok {
		return u.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

func (e *examiner) route(ctx context.Context) []doctor.Finding {
	w, err := e.find(ctx)
	if err != nil {
		return []doctor.Finding{{
			Status: doctor.Failure, Seen: err.Error(), Want: "a name that is known, and a route to its address",
			Remedy: "getent hosts " + e.Host + "; ip route get \"$(getent ahostsv4 " + e.Host + " | awk '{print $1; exit}')\"",
		}}
	}
	return []doctor.Finding{{Seen: fmt.Sprintf("%s by %s, from %s", w.to, w.iface.Name, w.from)}}
}
