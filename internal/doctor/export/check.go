package export

import (
	"cmp"
	"context"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/childenv"
	"github.com/decamp/decamp/internal/doctor"
)

// Options select the exports to examine. The zero value examines all exports of this
// machine.
type Options struct {
	// Folder is the destination of disks. Exports that neither contain it nor are below
	// it are ignored. Empty means all exports.
	Folder string

	Hosts  []Host  // ESXi hosts that will write to the exports
	Mounts []Mount // NFS datastores of those hosts

	Root       fs.FS         // file system of this machine; default /
	LocalAddrs []netip.Addr  // addresses of this machine; default those of its interfaces
	Portmap    string        // host:port of the port mapper; default 127.0.0.1:111
	Resolver   Resolver      // name service; default the system's
	Probe      time.Duration // duration of the write probe; default 10 s

	// Listens reports whether a TCP port of this machine accepts connections. The
	// default connects to it.
	Listens func(ctx context.Context, port int) bool

	// Exportfs returns the output of exportfs -v. The default runs the command.
	Exportfs func(ctx context.Context) (string, error)
}

// Host is an ESXi host with the address from which it sends NFS requests.
type Host struct {
	Name string     // name in messages
	Addr netip.Addr // address of its VMkernel interface
}

// Mount is an NFS datastore of a host.
type Mount struct {
	Host      string // Name of the Host
	Datastore string // name of the datastore
	Server    string // name or address
	Path      string // exported path
}

const (
	nfsPort     = 2049 // TCP port of NFS
	portmapPort = 111  // TCP port of the port mapper
)

// withDefaults returns o with defaults for all optional fields, and with a resolver
// that has a time limit.
func (o Options) withDefaults() Options {
	if o.Folder != "" {
		o.Folder = path.Clean(o.Folder)
	}
	if o.Root == nil {
		o.Root = os.DirFS("/")
	}
	if o.LocalAddrs == nil {
		o.LocalAddrs = localAddresses()
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	o.Resolver = boundedResolver{o.Resolver}
	if o.Exportfs == nil {
		o.Exportfs = runExportfs
	}
	o.Portmap = cmp.Or(o.Portmap, "127.0.0.1:111")
	o.Probe = cmp.Or(o.Probe, 10*time.Second)
	return o
}

// localAddresses returns the addresses of this machine's interfaces, without loopback
// and link-local ones. It returns nil if they cannot be read.
func localAddresses() (here []netip.Addr) {
	all, _ := net.InterfaceAddrs() // without them, mounts are judged by the exports only
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			here = append(here, p.Addr())
		}
	}
	return here
}

// runExportfs runs exportfs -v and returns its output.
func runExportfs(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "exportfs", "-v")
	cmd.Env = childenv.Of(os.Environ())
	out, err := cmd.Output()
	return string(out), err
}

// isListening reports whether a TCP port of this machine accepts connections.
func (o Options) isListening(ctx context.Context, port int) bool {
	if o.Listens != nil {
		return o.Listens(ctx, port)
	}
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)).String())
	if err != nil {
		return false
	}
	_ = c.Close() // no data was sent
	return true
}

// Checks returns the checks of exports, whose codes begin with nfs-. Without exports on
// this machine they have no findings.
func Checks(o Options) []doctor.Check {
	o = o.withDefaults()
	e := &examiner{Options: o}
	check := func(code, title string, run func(context.Context, *Server) []doctor.Finding, needs ...string) doctor.Check {
		return doctor.Check{Code: code, Title: title, Needs: needs, Run: func(ctx context.Context) (found []doctor.Finding) {
			for _, s := range e.findServers(ctx) {
				found = append(found, run(ctx, s)...)
			}
			return found
		}}
	}
	const running, reloaded, mapped, admitted = "nfs-server", "nfs-reload", "nfs-portmap", "nfs-client"
	write := check("nfs-write", "stable writes are as fast as unstable writes", e.checkRate, running, mapped, "nfs-root", "nfs-access")
	// The probe writes for several seconds.
	write.Slow = true
	return []doctor.Check{
		check(reloaded, "the running NFS server has the exports of the files", e.checkReloaded, running),
		check("nfs-sync", "exports are async", e.checkSync),
		check("nfs-syntax", "the files of exports have no misleading or invalid lines", e.checkSyntax),
		check(running, "the NFS server runs", e.checkRunning),
		check(mapped, "NFS and MOUNT are registered at the port mapper", e.checkPortmap, running),
		check("nfs-version", "NFS version 3 is enabled", e.checkVersion, running),
		check(admitted, "the hosts may mount the exports", e.checkAdmitted),
		check("nfs-root", "exports have no_root_squash", e.checkRoot),
		check("nfs-access", "exports are writable", e.checkAccess),
		check("nfs-subtree", "exports have no_subtree_check", e.checkSubtree),
		check("nfs-mount", "the hosts have mounted the exports of this machine", e.checkMounts, admitted),
		write,
	}
}

// An examiner reads the configuration of this machine once, for all checks. Its methods
// are safe for concurrent use.
type examiner struct {
	Options
	once  sync.Once // runs the detection of servers
	found []*Server // relevant servers; set by once
}

// findServers returns the NFS servers with relevant exports. It detects them on the
// first call.
func (e *examiner) findServers(ctx context.Context) []*Server {
	e.once.Do(func() {
		for _, s := range e.Options.findServers(ctx) {
			if e.keepRelevant(s) {
				s.relevant = e.relevantExports(ctx, s)
				e.found = append(e.found, s)
			}
		}
	})
	return e.found
}

// keepRelevant removes exports that are not related to Options.Folder, and reports
// whether any remain.
func (e *examiner) keepRelevant(s *Server) bool {
	if e.Folder == "" {
		return true
	}
	keep := func(from []Export) (kept []Export) {
		for _, x := range from {
			if isRelated(x.Path, e.Folder) {
				kept = append(kept, x)
			}
		}
		return kept
	}
	s.Written, s.Live, s.NoV3 = keep(s.Written), keep(s.Live), keep(s.NoV3)
	return len(s.Written)+len(s.Live)+len(s.NoV3) > 0
}
