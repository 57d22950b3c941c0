package export

import (
	"context"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

// checkAdmitted checks that each host may mount one of the exports. If a folder was
// selected, it reports each export that excludes a host.
func (e *examiner) checkAdmitted(ctx context.Context, s *Server) (found []doctor.Finding) {
	for _, h := range e.Hosts {
		var in, out []doctor.Finding
		for _, folder := range s.exportedPaths() {
			if f := e.admitsHost(ctx, s, folder, h); f.Status == doctor.OK {
				in = append(in, f)
			} else {
				out = append(out, f)
			}
		}
		found = append(found, in...)
		// Exports for other hosts are usual, so one that admits the host is enough.
		if e.Folder != "" || len(in) == 0 { // else it may be meant so
			found = append(found, out...)
		}
	}
	return found
}

// admitsHost returns the finding for one host and one exported folder.
func (e *examiner) admitsHost(ctx context.Context, s *Server, folder string, h Host) doctor.Finding {
	x, may := s.exportFor(ctx, folder, h, e.Resolver)
	f := doctor.Finding{On: fmt.Sprintf("host %s, %s", h.Name, folder), Want: "an export to " + h.Addr.String()}
	switch addr := Client(h.Addr.String()); may {
	case Yes:
		f.Found = fmt.Sprintf("%s matches %s", addr, x.Client)
	case No:
		f.Status, f.Remedy = doctor.Failure, s.remedyFor(s.firstExport(folder), addr)
		f.Found = fmt.Sprintf("no access from %s: %s is exported only to %s", addr, folder, s.clientsOf(folder))
	default:
		f.Status, f.Remedy = doctor.Unknown, s.remedyFor(x, addr)
		f.Found = fmt.Sprintf("cannot determine whether %s matches %s", addr, x.Client)
	}
	return f
}

// firstExport returns the first export of a folder, which must have one.
func (s *Server) firstExport(folder string) Export {
	all := s.effectiveExports()
	return all[slices.IndexFunc(all, func(e Export) bool { return e.Path == folder })]
}

// relevantExports returns the exports whose rules apply to the hosts, or all exports if
// there are no hosts. Read-only exports are omitted if no folder was selected, because
// they may be intended.
func (e *examiner) relevantExports(ctx context.Context, s *Server) (concern []Export) {
	if len(e.Hosts) == 0 {
		concern = s.effectiveExports()
	}
	for _, folder := range s.exportedPaths() {
		for _, h := range e.Hosts {
			if x, may := s.exportFor(ctx, folder, h, e.Resolver); may != No && !slices.Contains(concern, x) {
				concern = append(concern, x)
			}
		}
	}
	return slices.DeleteFunc(concern, func(x Export) bool { return e.Folder == "" && x.Rules.Access == ReadOnly })
}

// checkEach calls judge for each relevant export and completes its findings. A finding
// without a remedy gets the remedy that sets all required rules.
func (s *Server) checkEach(judge func(Export) doctor.Finding) (found []doctor.Finding) {
	for _, x := range s.relevant {
		f := judge(x)
		f.On = "export " + x.String()
		if f.Status != doctor.OK && f.Remedy == "" {
			f.Remedy = s.remedyFor(x)
		}
		found = append(found, f)
	}
	return found
}

// checkSync reports exports that flush the medium at each write.
func (e *examiner) checkSync(_ context.Context, s *Server) []doctor.Finding {
	return s.checkEach(func(x Export) doctor.Finding {
		switch {
		case !x.Rules.Sync:
			return doctor.Finding{Found: "async"}
		case s.Name == ganeshaName:
			return doctor.Finding{
				Status: doctor.Advice, Found: "nfs-ganesha flushes each write of ESXi to the disk, and has no option async",
				Want:   "an NFS server that acknowledges writes before a flush",
				Remedy: "# use decamp's own NFS server, which flushes once at the end:\ndecamp migrate --transport landing",
			}
		}
		return doctor.Finding{
			Status: doctor.Warning, Want: "async; a power failure loses only a copy, which can be repeated",
			Found: fmt.Sprintf("%s has sync: ESXi waits for the disk after each 64 KiB, which was 13 to 24 times slower in published measurements", x.At),
		}
	})
}

// checkRoot reports exports that map root, the user of ESXi, to another user.
func (e *examiner) checkRoot(_ context.Context, s *Server) []doctor.Finding {
	return s.checkEach(func(x Export) doctor.Finding {
		switch {
		case !x.Rules.isSquashed():
			return doctor.Finding{Found: "no_root_squash"}
		case x.Rules.Anon != "":
			return doctor.Finding{
				Status: doctor.Advice, Found: fmt.Sprintf("%s maps root of the hosts to user %s", x.At, x.Rules.Anon),
				Want: "a folder that belongs to this user", Remedy: fmt.Sprintf("chown %s %s", x.Rules.Anon, fault.Quote(x.Path)),
			}
		}
		status := doctor.Failure
		if e.Folder == "" && len(e.Hosts) == 0 { // the export may be for other machines
			status = doctor.Warning
		}
		return doctor.Finding{
			Status: status, Want: "no_root_squash, because ESXi writes as root",
			Found: fmt.Sprintf("%s has root_squash: ESXi can mount the datastore, but cannot write", x.At),
		}
	})
}

// checkAccess reports exports that are not writable.
func (e *examiner) checkAccess(_ context.Context, s *Server) []doctor.Finding {
	return s.checkEach(func(x Export) doctor.Finding {
		switch x.Rules.Access {
		case ReadWrite:
			return doctor.Finding{Found: "rw"}
		case NoAccess:
			return doctor.Finding{Status: doctor.Failure, Found: fmt.Sprintf("%s permits no access", x.At), Want: "rw"}
		}
		return doctor.Finding{Status: doctor.Failure, Found: fmt.Sprintf("%s is read-only", x.At), Want: "rw"}
	})
}

// checkSubtree reports exports with subtree checks, which break renames of open files.
func (e *examiner) checkSubtree(_ context.Context, s *Server) []doctor.Finding {
	return s.checkEach(func(x Export) doctor.Finding {
		if !x.Rules.Subtree {
			return doctor.Finding{Found: "no_subtree_check"}
		}
		return doctor.Finding{
			Status: doctor.Advice, Want: "no_subtree_check",
			Found: fmt.Sprintf("%s has subtree_check: files that are renamed while open become stale, and ESXi renames files at the end of a copy", x.At),
		}
	})
}
