package nfs

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// The MOUNT program (RFC 1813 appendix I).
const (
	mountProgram = 100005
	mountVersion = 3

	maxMountPath = 1024 // MNTPATHLEN

	// maxMounts is how many mounts DUMP tells of. The list is a courtesy: a mount that is
	// not in it works as well.
	maxMounts = 1024
)

// mountd is the MOUNT program: it gives out the first handle.
type mountd struct {
	exports *exportTable
	log     *slog.Logger

	mu     sync.Mutex
	mounts []mounted
}

type mounted struct {
	host netip.Addr
	path string
}

func (m *mountd) newProgram() *oncrpc.Program {
	procedures := []*oncrpc.Procedure{
		0: oncrpc.Null,
		1: m.defineProcedure("MNT", m.serveMnt),
		2: m.defineProcedure("DUMP", m.serveDump),
		3: m.defineProcedure("UMNT", m.serveUmnt),
		4: m.defineProcedure("UMNTALL", m.serveUmntall),
		5: m.defineProcedure("EXPORT", m.serveExport),
	}
	return &oncrpc.Program{
		Number: mountProgram, Name: "mount", Low: mountVersion, High: mountVersion,
		Procedure: func(_, n uint32) *oncrpc.Procedure { return procedureAt(procedures, n) },
	}
}

// defineProcedure makes a procedure whose arguments are a path or nothing.
func (m *mountd) defineProcedure(name string, answer func(host netip.Addr, args string, e *xdr.Encoder)) *oncrpc.Procedure {
	takesPath := name == "MNT" || name == "UMNT"
	return &oncrpc.Procedure{Name: name, Decode: func(_ context.Context, c *oncrpc.Call) (oncrpc.Answer, error) {
		var arg string
		if takesPath {
			arg = c.Args.String(maxMountPath)
		}
		host := c.Peer.Addr()
		return func(_ context.Context, e *xdr.Encoder) error {
			answer(host, arg, e)
			return nil
		}, c.Args.Err()
	}}
}

// serveMnt answers MNT with the export's handle, or with that of a folder in it, as other
// servers do: libnfs mounts the folder of the file it copies.
func (m *mountd) serveMnt(host netip.Addr, arg string, e *xdr.Encoder) {
	n, err := m.exports.mountPoint(arg)
	e.Uint32(uint32(statusOf(err))) // the numbers of mountstat3 are those of nfsstat3
	if err != nil {
		m.log.Info("mount refused", "host", host.String(), "path", arg, "err", err)
		return
	}
	m.log.Info("mounted", "host", host.String(), "path", arg)
	m.addMount(mounted{host, arg})
	e.Opaque(n.export.handleOf(n))
	flavors := [...]uint32{oncrpc.AuthSys, oncrpc.AuthNone}
	e.Uint32(uint32(len(flavors)))
	for _, f := range flavors {
		e.Uint32(f)
	}
}

// Mount is what a client said it mounted and did not say it unmounted: a client that lost
// power stays in the list, and one that mounted before the server was started is not in it.
type Mount struct {
	Host netip.Addr
	Path string
}

// Mounts lists them, the first to mount first.
func (s *Server) Mounts() []Mount {
	return s.mountd.listMounts()
}

func (m *mountd) listMounts() (list []Mount) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mounted := range m.mounts {
		list = append(list, Mount{mounted.host, mounted.path})
	}
	return list
}

func (m *mountd) addMount(new mounted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, old := range m.mounts {
		if old == new {
			return
		}
	}
	if len(m.mounts) == maxMounts {
		m.mounts = m.mounts[1:]
	}
	m.mounts = append(m.mounts, new)
}

// dropMounts forgets a host's mounts of a path, or all where the path is empty.
func (m *mountd) dropMounts(host netip.Addr, p string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var kept []mounted
	for _, old := range m.mounts {
		if old.host != host || p != "" && old.path != p {
			kept = append(kept, old)
		}
	}
	m.mounts = kept
}

// serveDump answers DUMP with the list of mounts.
func (m *mountd) serveDump(_ netip.Addr, _ string, e *xdr.Encoder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mounted := range m.mounts {
		e.Bool(true)
		e.String(mounted.host.String())
		e.String(mounted.path)
	}
	e.Bool(false)
}

// serveUmnt answers UMNT.
func (m *mountd) serveUmnt(host netip.Addr, arg string, _ *xdr.Encoder) {
	if arg != "" {
		m.dropMounts(host, arg)
	}
}

// serveUmntall answers UMNTALL.
func (m *mountd) serveUmntall(host netip.Addr, _ string, _ *xdr.Encoder) { m.dropMounts(host, "") }

// serveExport answers EXPORT. Who may mount is not told: whoever reads this may.
func (m *mountd) serveExport(_ netip.Addr, _ string, e *xdr.Encoder) {
	for _, x := range m.exports.list {
		e.Bool(true)
		e.String(x.Path)
		e.Bool(false) // no groups
	}
	e.Bool(false)
}
