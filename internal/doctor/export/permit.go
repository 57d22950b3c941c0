package export

import (
	"context"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

// admitted looks for an export that lets each host in.
func (e *examiner) admitted(ctx context.Context, s *Server) (found []doctor.Finding) {
	for _, h := range e.Hosts {
		var in, out []doctor.Finding
		for _, folder := range s.folders() {
			if f := e.admits(ctx, s, folder, h); f.Status == doctor.OK {
				in = append(in, f)
			} else {
				out = append(out, f)
			}
		}
		found = append(found, in...)
		if e.Folder != "" || len(in) == 0 { // else it may be meant so
			found = append(found, out...)
		}
	}
	return found
}

func (e *examiner) admits(ctx context.Context, s *Server, folder string, h Host) doctor.Finding {
	x, may := s.pick(ctx, folder, h, e.Resolver)
	f := doctor.Finding{On: fmt.Sprintf("host %s, %s", h.Name, folder), Want: "an export to " + h.Addr.String()}
	switch addr := Client(h.Addr.String()); may {
	case Yes:
		f.Seen = fmt.Sprintf("%s is one of %s", addr, x.Client)
	case No:
		f.Status, f.Remedy = doctor.Failure, s.editing(s.first(folder), addr)
		f.Seen = fmt.Sprintf("it comes from %s, and %s is exported to %s: wrong subnet", addr, folder, s.clients(folder))
	default:
		f.Status, f.Remedy = doctor.Unknown, s.editing(x, addr)
		f.Seen = fmt.Sprintf("it is unknown here whether %s is one of %s", addr, x.Client)
	}
	return f
}

func (s *Server) first(folder string) Export {
	all := s.all()
	return all[slices.IndexFunc(all, func(e Export) bool { return e.Path == folder })]
}

// concern returns the exports whose rules apply to the hosts; without hosts, all. Without a folder,
// read-only exports count as intended.
func (e *examiner) concern(ctx context.Context, s *Server) (concern []Export) {
	if len(e.Hosts) == 0 {
		concern = s.all()
	}
	for _, folder := range s.folders() {
		for _, h := range e.Hosts {
			if x, may := s.pick(ctx, folder, h, e.Resolver); may != No && !slices.Contains(concern, x) {
				concern = append(concern, x)
			}
		}
	}
	return slices.DeleteFunc(concern, func(x Export) bool { return e.Folder == "" && x.Rules.Access == ReadOnly })
}

// each judges the rules of exports, one by one.
func (s *Server) each(judge func(Export) doctor.Finding) (found []doctor.Finding) {
	for _, x := range s.concern {
		f := judge(x)
		f.On = "export " + x.String()
		if f.Status != doctor.OK && f.Remedy == "" {
			f.Remedy = s.editing(x)
		}
		found = append(found, f)
	}
	return found
}

func (e *examiner) sync(_ context.Context, s *Server) []doctor.Finding {
	return s.each(func(x Export) doctor.Finding {
		switch {
		case !x.Rules.Sync:
			return doctor.Finding{Seen: "async"}
		case s.Name == ganeshaName:
			return doctor.Finding{
				Status: doctor.Advice, Seen: "nfs-ganesha flushes the medium at each write of ESXi's, and has no async",
				Want:   "writes that are acknowledged from memory",
				Remedy: "decamp migrate --transport landing   # decamp's own NFS server, which flushes once in the end",
			}
		}
		return doctor.Finding{
			Status: doctor.Warning, Want: "async: a copy that a power cut spoils is made again",
			Seen: fmt.Sprintf("%s: sync: ESXi waits for the medium at each 64 KiB, which was 13 to 24 times slower where it was measured", x.At),
		}
	})
}

func (e *examiner) root(_ context.Context, s *Server) []doctor.Finding {
	return s.each(func(x Export) doctor.Finding {
		switch {
		case !x.Rules.squashed():
			return doctor.Finding{Seen: "no_root_squash"}
		case x.Rules.Anon != "":
			return doctor.Finding{
				Status: doctor.Advice, Seen: fmt.Sprintf("%s: root of a host is user %s here", x.At, x.Rules.Anon),
				Want: "a folder that this user owns", Remedy: fmt.Sprintf("chown %s %s", x.Rules.Anon, fault.Quote(x.Path)),
			}
		}
		status := doctor.Failure
		if e.Folder == "" && len(e.Hosts) == 0 { // the export may be for other machines
			status = doctor.Warning
		}
		return doctor.Finding{
			Status: status, Want: "no_root_squash: ESXi writes as root",
			Seen: fmt.Sprintf("%s: root_squash: the datastore mounts, and whatever ESXi writes is refused", x.At),
		}
	})
}

func (e *examiner) access(_ context.Context, s *Server) []doctor.Finding {
	return s.each(func(x Export) doctor.Finding {
		switch x.Rules.Access {
		case ReadWrite:
			return doctor.Finding{Seen: "rw"}
		case NoAccess:
			return doctor.Finding{Status: doctor.Failure, Seen: fmt.Sprintf("%s: no access", x.At), Want: "rw"}
		}
		return doctor.Finding{Status: doctor.Failure, Seen: fmt.Sprintf("%s: read-only", x.At), Want: "rw"}
	})
}

func (e *examiner) subtree(_ context.Context, s *Server) []doctor.Finding {
	return s.each(func(x Export) doctor.Finding {
		if !x.Rules.Subtree {
			return doctor.Finding{Seen: "no_subtree_check"}
		}
		return doctor.Finding{
			Status: doctor.Advice, Want: "no_subtree_check",
			Seen: fmt.Sprintf("%s: subtree_check: a file that is open and renamed becomes stale, as ESXi does at the end of a copy", x.At),
		}
	})
}
