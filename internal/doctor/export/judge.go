package export

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/doctor"
)

func (e *examiner) running(ctx context.Context, s *Server) []doctor.Finding {
	f := doctor.Finding{On: s.Name, Seen: "it runs"}
	switch {
	case s.Running != Yes:
		f.Status, f.Seen = doctor.Failure, "folders are exported in "+strings.Join(files(s), ", ")+", and no server runs"
		f.Want, f.Remedy = "the server runs", s.start
	case !e.listens(ctx, nfsPort):
		f.Status, f.Seen = doctor.Failure, fmt.Sprintf("it runs, and TCP port %d is closed", nfsPort)
		f.Want, f.Remedy = "NFS over TCP at port 2049", "ss -ltnp | grep 2049   # who has it\n"+strings.Replace(s.start, "enable --now", "restart", 1)
	}
	return []doctor.Finding{f}
}

// files are those that exports are written in.
func files(s *Server) (names []string) {
	for _, e := range slices.Concat(s.Written, s.NoV3) {
		if !slices.Contains(names, e.At.File) {
			names = append(names, e.At.File)
		}
	}
	return names
}

func (e *examiner) syntax(_ context.Context, s *Server) (found []doctor.Finding) {
	for _, p := range s.Problems {
		found = append(found, doctor.Finding{On: p.At.String(), Status: doctor.Warning, Seen: p.Seen, Want: "a line that is read as it looks", Remedy: p.Remedy})
	}
	return found
}

// reloaded compares the files with the exports of the server.
func (e *examiner) reloaded(_ context.Context, s *Server) (found []doctor.Finding) {
	if s.LiveFrom == "" {
		return []doctor.Finding{{On: s.Name, Status: doctor.Unknown, Seen: "its exports cannot be read here", Want: "the exports of the files", Remedy: s.reload}}
	}
	add := func(on Export, st doctor.Status, format string, args ...any) {
		found = append(found, doctor.Finding{
			On: "export " + on.String(), Status: st, Seen: fmt.Sprintf(format, args...),
			Want: "the same in the files and in the server", Remedy: s.reload,
		})
	}
	for _, w := range s.Written {
		i := slices.IndexFunc(s.Live, func(l Export) bool { return l.isFor(w) || s.Paths && l.Path == w.Path })
		switch {
		case i < 0:
			add(w, doctor.Failure, "%s exports it and the server does not: edited and not reloaded", w.At)
		case !s.Paths && s.Live[i].Rules != w.Rules:
			here, there := w.Rules.differ(s.Live[i].Rules)
			add(w, doctor.Failure, "%s has %s, the server still has %s: edited and not reloaded", w.At, here, there)
		}
	}
	for _, l := range s.Live {
		if w := slices.IndexFunc(s.Written, func(w Export) bool { return l.isFor(w) || s.Paths && l.Path == w.Path }); w < 0 {
			add(l, doctor.Warning, "it is exported and in no file: taken out and not reloaded, or exported by hand until the next reload")
		}
	}
	if len(found) == 0 && s.Paths && !s.started.IsZero() && s.edited.After(s.started) {
		return []doctor.Finding{s.maybeEdited()}
	}
	return orOK(found, s.Name, "the exports are those of the files")
}

// maybeEdited is for a server that does not tell its rules: the folders are right, and a squash
// that was edited would look the same.
func (s *Server) maybeEdited() doctor.Finding {
	const clock = time.DateTime
	return doctor.Finding{
		On: s.Name, Status: doctor.Advice, Want: "a reload after each edit", Remedy: s.reload,
		Seen: fmt.Sprintf("edited %s, after the server was started %s: the server lists its folders without their rules, so a reload cannot be detected",
			s.edited.Format(clock), s.started.Format(clock)),
	}
}

func orOK(found []doctor.Finding, on, seen string) []doctor.Finding {
	if len(found) == 0 {
		return []doctor.Finding{{On: on, Seen: seen}}
	}
	return found
}

// mapped queries the port mapper for both programs.
func (e *examiner) mapped(ctx context.Context, s *Server) []doctor.Finding {
	f := doctor.Finding{On: s.Name, Seen: "both are registered", Want: "programs 100003 and 100005, version 3, at the port mapper: ESXi knows no other way"}
	start := "systemctl enable --now rpcbind && " + strings.Replace(s.start, "enable --now", "restart", 1)
	if !e.listens(ctx, portmapPort) {
		f.Status, f.Seen, f.Remedy = doctor.Failure, fmt.Sprintf("port %d is closed: no port mapper runs", portmapPort), start
		return []doctor.Finding{f}
	}
	var missing []string
	for name, program := range map[string]uint32{"NFS": nfsProgram, "MOUNT": mountProgram} {
		p, err := port(ctx, e.Portmap, program, nfsVersion)
		if err != nil {
			f.Status, f.Seen, f.Remedy = doctor.Unknown, "the port mapper does not answer: "+err.Error(), "rpcinfo -p"
			return []doctor.Finding{f}
		}
		if p == 0 {
			missing = append(missing, name)
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		f.Status, f.Seen, f.Remedy = doctor.Failure, strings.Join(missing, " and ")+" version 3: not registered", start
	}
	return []doctor.Finding{f}
}

func (e *examiner) version(_ context.Context, s *Server) []doctor.Finding {
	f := doctor.Finding{On: s.Name, Seen: "version 3 is offered", Want: "version 3: vmkfstools and decamp mount nothing else"}
	switch {
	case s.V3 == Unknown:
		return nil
	case len(s.NoV3) == 0 && s.V3 == Yes:
	case len(s.NoV3) > 0:
		f.Status = doctor.Failure
		if e.Folder == "" && len(s.Written) > 0 { // this may be intended
			f.Status = doctor.Warning
		}
		f.Seen = "Protocols leave it out for " + strings.Join(paths(s.NoV3), ", ")
		f.Remedy = fmt.Sprintf("at %s, and in NFS_CORE_PARAM, say Protocols = 3,4;\n%s", s.NoV3[0].At, s.reload)
	default:
		f.Status, f.Seen = doctor.Failure, "the kernel's server has version 3 turned off"
		f.Remedy = "in the section [nfsd] of /etc/nfs.conf say vers3=y\nsystemctl restart nfs-server"
	}
	return []doctor.Finding{f}
}

// paths are those of exports, each once.
func paths(of []Export) (folders []string) {
	for _, e := range of {
		if !slices.Contains(folders, e.Path) {
			folders = append(folders, e.Path)
		}
	}
	return folders
}
