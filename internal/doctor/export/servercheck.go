package export

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/doctor"
)

// checkRunning reports a failure if the server does not run, or if the NFS port is
// closed.
func (e *examiner) checkRunning(ctx context.Context, s *Server) []doctor.Finding {
	f := doctor.Finding{On: s.Name, Found: "the server runs"}
	switch {
	case s.Running != Yes:
		f.Status, f.Found = doctor.Failure, "the server does not run, and folders are exported in "+strings.Join(filesOf(s), ", ")
		f.Want, f.Remedy = "a running NFS server", s.start
	case !e.isListening(ctx, nfsPort):
		f.Status, f.Found = doctor.Failure, fmt.Sprintf("the server runs, but TCP port %d is closed", nfsPort)
		f.Want, f.Remedy = "NFS over TCP on port 2049", "# find the process that uses the port:\nss -ltnp | grep 2049\n"+strings.Replace(s.start, "enable --now", "restart", 1)
	}
	return []doctor.Finding{f}
}

// filesOf returns the configuration files of a server's exports, each once.
func filesOf(s *Server) (names []string) {
	for _, e := range slices.Concat(s.Written, s.NoV3) {
		if !slices.Contains(names, e.At.File) {
			names = append(names, e.At.File)
		}
	}
	return names
}

// checkSyntax reports the problems of the configuration files as warnings.
func (e *examiner) checkSyntax(_ context.Context, s *Server) (found []doctor.Finding) {
	for _, p := range s.Problems {
		found = append(found, doctor.Finding{On: p.At.String(), Status: doctor.Warning, Found: p.Seen, Want: "valid lines without ambiguity", Remedy: p.Remedy})
	}
	return found
}

// checkReloaded compares the exports of the files with those of the running server. An
// export that is only in one of them was edited without a reload.
func (e *examiner) checkReloaded(_ context.Context, s *Server) (found []doctor.Finding) {
	if s.LiveFrom == "" {
		return []doctor.Finding{{On: s.Name, Status: doctor.Unknown, Found: "cannot read the exports of the running server", Want: "a server with the exports of the files", Remedy: s.reload}}
	}
	add := func(on Export, st doctor.Status, format string, args ...any) {
		found = append(found, doctor.Finding{
			On: "export " + on.String(), Status: st, Found: fmt.Sprintf(format, args...),
			Want: "equal exports in the files and in the running server", Remedy: s.reload,
		})
	}
	for _, w := range s.Written {
		i := slices.IndexFunc(s.Live, func(l Export) bool { return l.isFor(w) || s.Paths && l.Path == w.Path })
		switch {
		case i < 0:
			add(w, doctor.Failure, "%s exports it, but the running server does not: the server was not reloaded", w.At)
		case !s.Paths && s.Live[i].Rules != w.Rules:
			here, there := w.Rules.diffOptions(s.Live[i].Rules)
			add(w, doctor.Failure, "%s has %s, but the running server has %s: the server was not reloaded", w.At, here, there)
		}
	}
	for _, l := range s.Live {
		if w := slices.IndexFunc(s.Written, func(w Export) bool { return l.isFor(w) || s.Paths && l.Path == w.Path }); w < 0 {
			add(l, doctor.Warning, "the running server exports it, but no file does: the export ends at the next reload")
		}
	}
	// A list without rules cannot show that rules were edited.
	if len(found) == 0 && s.Paths && !s.started.IsZero() && s.edited.After(s.started) {
		return []doctor.Finding{s.maybeEdited()}
	}
	return orOK(found, s.Name, "the running server has the exports of the files")
}

// maybeEdited returns the recommendation for a server that lists folders without rules, and
// whose files were edited after it started. A change of the rules only cannot be
// detected.
func (s *Server) maybeEdited() doctor.Finding {
	const clock = time.DateTime
	return doctor.Finding{
		On: s.Name, Status: doctor.Advice, Want: "a reload after each change", Remedy: s.reload,
		Found: fmt.Sprintf("the files changed at %s, after the server's start at %s; decamp cannot detect whether the server was reloaded",
			s.edited.Format(clock), s.started.Format(clock)),
	}
}

// orOK returns found, or one OK finding if found is empty.
func orOK(found []doctor.Finding, on, seen string) []doctor.Finding {
	if len(found) == 0 {
		return []doctor.Finding{{On: on, Found: seen}}
	}
	return found
}

// checkPortmap queries the port mapper for NFS and MOUNT. ESXi finds both programs only
// through it.
func (e *examiner) checkPortmap(ctx context.Context, s *Server) []doctor.Finding {
	f := doctor.Finding{On: s.Name, Found: "NFS and MOUNT are registered", Want: "programs 100003 and 100005, version 3, at the port mapper, where ESXi looks them up"}
	start := "systemctl enable --now rpcbind && " + strings.Replace(s.start, "enable --now", "restart", 1)
	if !e.isListening(ctx, portmapPort) {
		f.Status, f.Found, f.Remedy = doctor.Failure, fmt.Sprintf("the port mapper does not run: port %d is closed", portmapPort), start
		return []doctor.Finding{f}
	}
	var missing []string
	for name, program := range map[string]uint32{"NFS": nfsProgram, "MOUNT": mountProgram} {
		p, err := portOf(ctx, e.Portmap, program, nfsVersion)
		if err != nil {
			f.Status, f.Found, f.Remedy = doctor.Unknown, "the port mapper does not answer: "+err.Error(), "rpcinfo -p"
			return []doctor.Finding{f}
		}
		if p == 0 {
			missing = append(missing, name)
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		f.Status, f.Found, f.Remedy = doctor.Failure, strings.Join(missing, " and ")+" version 3 not registered at the port mapper", start
	}
	return []doctor.Finding{f}
}

// checkVersion reports exports without NFS version 3. It returns nothing if the version
// is unknown.
func (e *examiner) checkVersion(_ context.Context, s *Server) []doctor.Finding {
	f := doctor.Finding{On: s.Name, Found: "NFS version 3 is enabled", Want: "NFS version 3, which vmkfstools and decamp require"}
	switch {
	case s.V3 == Unknown:
		return nil
	case len(s.NoV3) == 0 && s.V3 == Yes:
	case len(s.NoV3) > 0:
		f.Status = doctor.Failure
		// An export without version 3 may be for other clients.
		if e.Folder == "" && len(s.Written) > 0 { // this may be intended
			f.Status = doctor.Warning
		}
		f.Found = "Protocols excludes NFS version 3 for " + strings.Join(pathsOf(s.NoV3), ", ")
		f.Remedy = fmt.Sprintf("# at %s, and in NFS_CORE_PARAM, set Protocols = 3,4;\n%s", s.NoV3[0].At, s.reload)
	default:
		f.Status, f.Found = doctor.Failure, "NFS version 3 is disabled"
		f.Remedy = "# in the section [nfsd] of /etc/nfs.conf, set vers3=y\nsystemctl restart nfs-server"
	}
	return []doctor.Finding{f}
}

// pathsOf returns the paths of exports, each once.
func pathsOf(of []Export) (folders []string) {
	for _, e := range of {
		if !slices.Contains(folders, e.Path) {
			folders = append(folders, e.Path)
		}
	}
	return folders
}
