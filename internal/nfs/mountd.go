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
	mountProgram = 100005 // number of the RPC program
	mountVersion = 3      // version for NFSv3

	maxMountPath = 1024 // longest MOUNT path: MNTPATHLEN

	// maxMounts bounds the list of mounts; the oldest entry is dropped. The list is only informative: an
	// unlisted mount works too.
	maxMounts = 1024
)

// mountd answers the MOUNT program: it maps a path to the first handle, and lists mounts.
type mountd struct {
	exports *exportTable // exports that can be mounted
	log     *slog.Logger

	mu     sync.Mutex // guards mounts
	mounts []mounted  // mounts in the order of their calls, without duplicates
}

// mounted is one entry of the list of mounts.
type mounted struct {
	host netip.Addr // address that the call came from
	path string     // path as the client sent it
}

// newProgram returns the RPC program with MOUNT version 3.
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

// defineProcedure returns a procedure that calls answer with the host's address and args. args is a
// path for MNT and UMNT, and "" for the others, which have no arguments.
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

// serveMnt answers MNT with the handle of an export or of a folder below one, and the accepted
// authentication flavors. libnfs mounts the folder of the file that it copies.
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

// A Mount is an entry of the list of mounts: a client sent MNT and no UMNT for it since the server was
// started. A client that lost power stays in the list.
type Mount struct {
	Host netip.Addr // Host is the address that the call came from.
	Path string     // Path is an export, or a folder below one.
}

// Mounts returns the list of mounts, the oldest first.
func (s *Server) Mounts() []Mount {
	return s.mountd.listMounts()
}

// listMounts returns a copy of the list, the oldest first.
func (m *mountd) listMounts() (list []Mount) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mounted := range m.mounts {
		list = append(list, Mount{mounted.host, mounted.path})
	}
	return list
}

// addMount adds an entry, unless it is in the list already.
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

// dropMounts removes the entries of a host for path p; all of them if p is empty.
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

// serveUmnt answers UMNT. It removes an entry from the list; handles stay valid.
func (m *mountd) serveUmnt(host netip.Addr, arg string, _ *xdr.Encoder) {
	if arg != "" {
		m.dropMounts(host, arg)
	}
}

// serveUmntall answers UMNTALL: it removes all entries of the host.
func (m *mountd) serveUmntall(host netip.Addr, _ string, _ *xdr.Encoder) { m.dropMounts(host, "") }

// serveExport answers EXPORT. The lists of groups are empty: each admitted host may mount each export.
func (m *mountd) serveExport(_ netip.Addr, _ string, e *xdr.Encoder) {
	for _, x := range m.exports.list {
		e.Bool(true)
		e.String(x.Path)
		e.Bool(false) // no groups
	}
	e.Bool(false)
}
