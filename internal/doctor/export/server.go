package export

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A Server is one NFS server of this machine, as it is written and as it runs.
type Server struct {
	Name    string
	Running Answer
	V3      Answer // whether it speaks version 3

	Written  []Export
	Live     []Export // exports of the running server
	LiveFrom string   // origin of Live; empty if it cannot be read
	NoV3     []Export // written, and not for version 3
	Problems []Problem

	// Paths reports that Live has folders without rules.
	Paths bool

	// Ordered reports that the rules of the first matching client apply, not those of the most specific
	// one.
	Ordered bool

	// Where Paths: when the server was started, and when its files were last edited. Zero is
	// that it is not known.
	started, edited time.Time

	concern []Export // relevant exports

	reload, start string // commands
}

const (
	kernelName  = "the kernel's NFS server"
	ganeshaName = "nfs-ganesha"
)

// all returns the exports after a reload of the files: those of the files, and live ones without a
// file.
func (s *Server) all() []Export {
	all := slices.Clone(s.Written)
	for _, e := range s.Live {
		if !s.Paths && !slices.ContainsFunc(s.Written, e.isFor) {
			all = append(all, e)
		}
	}
	return all
}

// isFor reports whether two open the same folder to the same client.
func (e Export) isFor(o Export) bool { return e.Path == o.Path && e.Client.same(o.Client) }

// callAsWritten gives hosts among the live clients the names that the files have for them:
// exportfs enters some by the name or address that the name service has.
func (s *Server) callAsWritten(ctx context.Context, r Resolver) {
	for i, l := range s.Live {
		if l.Client.rank() != isHost || slices.ContainsFunc(s.Written, l.isFor) {
			continue
		}
		for _, w := range s.Written {
			if w.Path == l.Path && w.Client.rank() == isHost && share(w.Client.addrs(ctx, r), l.Client.addrs(ctx, r)) {
				s.Live[i].Client = w.Client
			}
		}
	}
}

func share(a, b []netip.Addr) bool {
	return slices.ContainsFunc(a, func(x netip.Addr) bool { return slices.Contains(b, x) })
}

// pick returns the export of a folder whose rules apply to a host. unknown reports that an export may
// apply, which cannot be determined.
func (s *Server) pick(ctx context.Context, folder string, h Host, r Resolver) (Export, Answer) {
	of := slices.DeleteFunc(s.all(), func(e Export) bool { return e.Path != folder })
	if !s.Ordered {
		slices.SortStableFunc(of, func(a, b Export) int { return int(a.Client.rank()) - int(b.Client.rank()) })
	}
	for _, e := range of {
		switch a := e.Client.admits(ctx, h.Addr, r); {
		case a == Yes && e.Rules.Access == NoAccess:
			return e, No
		case a != No:
			return e, a
		}
	}
	return Export{}, No
}

// folders are the exported paths.
func (s *Server) folders() []string { return paths(s.all()) }

// holds reports whether folder is below the exported path, or contains it.
func holds(path, folder string) bool {
	below := func(a, b string) bool {
		return a == b || strings.HasPrefix(a, strings.TrimSuffix(b, "/")+"/")
	}
	return below(folder, path) || below(path, folder)
}

// clients are those of a folder, as words.
func (s *Server) clients(folder string) string {
	var names []string
	for _, e := range s.all() {
		if e.Path == folder && e.Rules.Access != NoAccess {
			names = append(names, string(e.Client))
		}
	}
	return strings.Join(names, ", ")
}
