package export

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A Server is one NFS server of this machine, with its configuration and its current
// state.
type Server struct {
	Name    string // kernelName or ganeshaName
	Running Answer // whether it runs
	V3      Answer // whether it offers NFS version 3

	Written  []Export  // exports of the configuration files
	Live     []Export  // exports of the running server
	LiveFrom string    // source of Live; empty if it cannot be read
	NoV3     []Export  // exports of the files without version 3
	Problems []Problem // misleading lines of the files

	// Paths reports that Live has folders without rules.
	Paths bool

	// Ordered reports that the rules of the first matching client apply, not those of
	// the most specific one.
	Ordered bool

	// For servers with Paths: the start of the server and the last edit of its files.
	// Zero if unknown.
	started, edited time.Time

	relevant []Export // exports whose rules are checked

	reload, start string // commands for the user
}

const (
	kernelName  = "the kernel's NFS server" // name of the kernel's server in messages
	ganeshaName = "nfs-ganesha"             // name of nfs-ganesha in messages
)

// effectiveExports returns the exports that a reload would leave: those of the files,
// and those of the running server that are in no file.
func (s *Server) effectiveExports() []Export {
	all := slices.Clone(s.Written)
	for _, e := range s.Live {
		if !s.Paths && !slices.ContainsFunc(s.Written, e.isFor) {
			all = append(all, e)
		}
	}
	return all
}

// isFor reports whether two exports have the same folder and client.
func (e Export) isFor(o Export) bool { return e.Path == o.Path && e.Client.isSame(o.Client) }

// callAsWritten replaces names of hosts in the live exports by those of the files.
// exportfs replaces some by the name or address from the name service.
func (s *Server) callAsWritten(ctx context.Context, r Resolver) {
	for i, l := range s.Live {
		if l.Client.rank() != isHost || slices.ContainsFunc(s.Written, l.isFor) {
			continue
		}
		for _, w := range s.Written {
			if w.Path == l.Path && w.Client.rank() == isHost && haveCommon(w.Client.lookupAddrs(ctx, r), l.Client.lookupAddrs(ctx, r)) {
				s.Live[i].Client = w.Client
			}
		}
	}
}

// haveCommon reports whether two lists have an address in common.
func haveCommon(a, b []netip.Addr) bool {
	return slices.ContainsFunc(a, func(x netip.Addr) bool { return slices.Contains(b, x) })
}

// exportFor returns the export of a folder whose rules apply to a host. Unknown means
// that the returned export may apply, which cannot be determined here.
func (s *Server) exportFor(ctx context.Context, folder string, h Host, r Resolver) (Export, Answer) {
	of := slices.DeleteFunc(s.effectiveExports(), func(e Export) bool { return e.Path != folder })
	// The kernel applies the rules of the most specific client.
	if !s.Ordered {
		slices.SortStableFunc(of, func(a, b Export) int { return int(a.Client.rank()) - int(b.Client.rank()) })
	}
	for _, e := range of {
		switch a := e.Client.admitsAddr(ctx, h.Addr, r); {
		case a == Yes && e.Rules.Access == NoAccess:
			return e, No
		case a != No:
			return e, a
		}
	}
	return Export{}, No
}

// exportedPaths returns the exported folders, each once.
func (s *Server) exportedPaths() []string { return pathsOf(s.effectiveExports()) }

// isRelated reports whether folder is the exported path, is below it, or contains it.
func isRelated(path, folder string) bool {
	below := func(a, b string) bool {
		return a == b || strings.HasPrefix(a, strings.TrimSuffix(b, "/")+"/")
	}
	return below(folder, path) || below(path, folder)
}

// clientsOf returns the clients of a folder for messages.
func (s *Server) clientsOf(folder string) string {
	var names []string
	for _, e := range s.effectiveExports() {
		if e.Path == folder && e.Rules.Access != NoAccess {
			names = append(names, string(e.Client))
		}
	}
	return strings.Join(names, ", ")
}
