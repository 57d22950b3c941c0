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

// Options say what to look at and what matters of it.
type Options struct {
	// Folder is where disks are to go: exports that neither hold it nor lie in it are not
	// looked at. "" is all.
	Folder string

	Hosts  []Host  // hosts that will write here
	Mounts []Mount // mounts of those hosts

	Root     fs.FS         // this machine's files; default those of /
	Here     []netip.Addr  // this machine's addresses; default those of its interfaces
	Portmap  string        // the port mapper's host:port; default 127.0.0.1:111
	Resolver Resolver      // default the system's
	Probe    time.Duration // how long the write probe takes; default 10 s

	// Listens reports whether a TCP port of this machine accepts connections.
	Listens func(ctx context.Context, port int) bool

	// Exportfs returns what exportfs -v prints.
	Exportfs func(ctx context.Context) (string, error)
}

// Host is an ESXi host, by the address that its NFS traffic comes from.
type Host struct {
	Name string
	Addr netip.Addr
}

// Mount is an NFS datastore of a host.
type Mount struct {
	Host      string // Host.Name
	Datastore string
	Server    string // name or address
	Path      string
}

const (
	nfsPort     = 2049
	portmapPort = 111
)

func (o Options) withDefaults() Options {
	if o.Folder != "" {
		o.Folder = path.Clean(o.Folder)
	}
	if o.Root == nil {
		o.Root = os.DirFS("/")
	}
	if o.Here == nil {
		o.Here = addresses()
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	o.Resolver = bounded{o.Resolver}
	if o.Exportfs == nil {
		o.Exportfs = runExportfs
	}
	o.Portmap = cmp.Or(o.Portmap, "127.0.0.1:111")
	o.Probe = cmp.Or(o.Probe, 10*time.Second)
	return o
}

// addresses are those of this machine's interfaces, without loopback.
func addresses() (here []netip.Addr) {
	all, _ := net.InterfaceAddrs() // without them, mounts are judged by the exports only
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			here = append(here, p.Addr())
		}
	}
	return here
}

func runExportfs(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "exportfs", "-v")
	cmd.Env = childenv.Of(os.Environ())
	out, err := cmd.Output()
	return string(out), err
}

// listens calls Listens, or connects.
func (o Options) listens(ctx context.Context, port int) bool {
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

// Checks returns the checks of exports, whose codes begin with nfs-. Without exports on this machine
// they have no findings.
func Checks(o Options) []doctor.Check {
	o = o.withDefaults()
	e := &examiner{Options: o}
	check := func(code, title string, run func(context.Context, *Server) []doctor.Finding, needs ...string) doctor.Check {
		return doctor.Check{Code: code, Title: title, Needs: needs, Run: func(ctx context.Context) (found []doctor.Finding) {
			for _, s := range e.servers(ctx) {
				found = append(found, run(ctx, s)...)
			}
			return found
		}}
	}
	const running, reloaded, mapped, admitted = "nfs-server", "nfs-reload", "nfs-portmap", "nfs-client"
	write := check("nfs-write", "stable writes are not much slower than others", e.write, running, mapped, "nfs-root", "nfs-access")
	write.Slow = true
	return []doctor.Check{
		check(reloaded, "the server exports what the files say", e.reloaded, running),
		check("nfs-sync", "exports are async, so that ESXi does not wait for the medium at each write", e.sync),
		check("nfs-syntax", "the files have no misleading lines", e.syntax),
		check(running, "the NFS server runs", e.running),
		check(mapped, "the port mapper has the ports of NFS and MOUNT", e.mapped, running),
		check("nfs-version", "NFS version 3 is offered", e.version, running),
		check(admitted, "the hosts may mount", e.admitted),
		check("nfs-root", "root of a host is root here", e.root),
		check("nfs-access", "the hosts may write", e.access),
		check("nfs-subtree", "no subtree checks", e.subtree),
		check("nfs-mount", "the hosts have mounted the exports of this machine", e.mounted, admitted),
		write,
	}
}

// An examiner looks at this machine once, and answers all checks from that.
type examiner struct {
	Options
	once  sync.Once
	found []*Server
}

func (e *examiner) servers(ctx context.Context) []*Server {
	e.once.Do(func() {
		for _, s := range e.Options.servers(ctx) {
			if e.concerned(s) {
				s.concern = e.concern(ctx, s)
				e.found = append(e.found, s)
			}
		}
	})
	return e.found
}

// concerned reports whether a server has exports that matter here, and leaves out all others.
func (e *examiner) concerned(s *Server) bool {
	if e.Folder == "" {
		return true
	}
	keep := func(from []Export) (kept []Export) {
		for _, x := range from {
			if holds(x.Path, e.Folder) {
				kept = append(kept, x)
			}
		}
		return kept
	}
	s.Written, s.Live, s.NoV3 = keep(s.Written), keep(s.Live), keep(s.NoV3)
	return len(s.Written)+len(s.Live)+len(s.NoV3) > 0
}
