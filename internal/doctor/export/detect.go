package export

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Where things are, below the root.
const (
	exportsFile = "etc/exports"              // exports of the kernel's server
	exportsDir  = "etc/exports.d"            // folder of further files
	etabFile    = "var/lib/nfs/etab"         // exports that exportfs entered
	kernelFile  = "proc/fs/nfsd/exports"     // exports that the kernel has in use
	threadsFile = "proc/fs/nfsd/threads"     // number of nfsd threads; 0 if stopped
	versionFile = "proc/fs/nfsd/versions"    // versions that the kernel offers
	ganeshaFile = "etc/ganesha/ganesha.conf" // main configuration of nfs-ganesha
)

// maxFile limits the size of a file, in bytes. Longer files are truncated.
const maxFile = 1 << 20

// fileReader reads files of this machine below a root.
type fileReader struct{ root fs.FS }

// readText returns the text of a file, and whether it could be read.
func (e fileReader) readText(name string) (string, bool) {
	f, err := e.root.Open(name)
	if err != nil {
		return "", false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(b), err == nil
}

// findServers returns the NFS servers of this machine that have exports, whether they
// run or not.
func (o Options) findServers(ctx context.Context) []*Server {
	see := fileReader{o.Root}
	var found []*Server
	if s := o.readKernel(ctx, see); len(s.effectiveExports()) > 0 {
		found = append(found, s)
	}
	if s := o.readGanesha(ctx, see); len(s.Written)+len(s.NoV3) > 0 { // else it is configured elsewhere, in a cluster or a container
		found = append(found, s)
	}
	return found
}

// readKernel reads the state of the kernel's server. It does not run if nfsd's file
// system is not mounted.
func (o Options) readKernel(ctx context.Context, see fileReader) *Server {
	s := &Server{Name: kernelName, reload: "exportfs -ra && exportfs -v", start: "systemctl enable --now nfs-server"}
	threads, _ := see.readText(threadsFile)
	n, err := strconv.Atoi(strings.TrimSpace(threads))
	s.Running = answerOf(err == nil && n > 0)
	s.readWritten(see)
	if s.Running == Yes {
		s.readLive(ctx, see, o.Exportfs)
		s.callAsWritten(ctx, o.Resolver)
		s.V3 = see.version3()
	}
	return s
}

// version3 reads whether the kernel's server offers NFS version 3, from text such as
// "-2 +3 +4 +4.1".
func (e fileReader) version3() Answer {
	text, ok := e.readText(versionFile)
	words := strings.Fields(text)
	if !ok || len(words) == 0 {
		return Unknown
	}
	return answerOf(slices.Contains(words, "+3"))
}

// readWritten reads /etc/exports and the files *.exports in /etc/exports.d, in the
// order of their names. exportfs ignores hidden files.
func (s *Server) readWritten(see fileReader) {
	names := []string{exportsFile}
	entries, err := fs.ReadDir(see.root, exportsDir)
	if err == nil {
		for _, e := range entries {
			if name := e.Name(); strings.HasSuffix(name, ".exports") && !strings.HasPrefix(name, ".") {
				names = append(names, path.Join(exportsDir, name))
			}
		}
	}
	for _, name := range names {
		text, _ := see.readText(name)
		exports, problems := ParseExports(text, "/"+name)
		s.Written, s.Problems = append(s.Written, exports...), append(s.Problems, problems...)
	}
}

// readLive reads the exports of the running kernel server. etab has all of them; the
// kernel's table replaces the rules of those that it contains.
func (s *Server) readLive(ctx context.Context, see fileReader, exportfs func(context.Context) (string, error)) {
	if text, ok := see.readText(etabFile); ok {
		s.Live, s.LiveFrom = ParseTable(text, "/"+etabFile), "/"+etabFile
	} else if text, err := exportfs(ctx); err == nil {
		s.Live, s.LiveFrom = ParseTable(text, "exportfs -v"), "exportfs -v"
	}
	// The kernel's table has only the exports in use, but with the rules in effect.
	text, ok := see.readText(kernelFile)
	for _, k := range ParseKernel(text, "/"+kernelFile) {
		for i, e := range s.Live {
			if e.isFor(k) {
				s.Live[i].Rules, s.Live[i].At = k.Rules, k.At
				s.Live[i].Rules.Anon = cmp.Or(k.Rules.Anon, e.Rules.Anon) // the kernel leaves it out at times
			}
		}
	}
	if ok && s.LiveFrom != "" {
		s.LiveFrom += " and /" + kernelFile
	}
}

// findProcess returns the /proc folder of a running process with that name, and whether
// there is one.
func (e fileReader) findProcess(name string) (dir string, runs bool) {
	entries, err := fs.ReadDir(e.root, "proc")
	if err != nil {
		return "", false
	}
	for _, p := range entries {
		if p.Name()[0] < '1' || p.Name()[0] > '9' {
			continue
		}
		dir := "proc/" + p.Name()
		if comm, _ := e.readText(dir + "/comm"); strings.TrimSpace(comm) == name {
			return dir, true
		}
	}
	return "", false
}

// startTime returns when a process was started, in seconds, or the zero time if /proc
// does not contain it (proc(5)).
func (e fileReader) startTime(dir string) time.Time {
	const afterName, perSecond = 22 - 3, 100 // the field, counted from behind the name; USER_HZ
	stat, _ := e.readText(dir + "/stat")
	// The name of the process is in parentheses and may contain blanks.
	_, rest, _ := strings.Cut(stat, ") ")
	fields := strings.Fields(rest)
	all, _ := e.readText("proc/stat")
	_, boot, _ := strings.Cut(all, "\nbtime ")
	boot, _, _ = strings.Cut(boot, "\n")
	if len(fields) <= afterName {
		return time.Time{}
	}
	ticks, err := strconv.ParseInt(fields[afterName], 10, 64)
	at, errBoot := strconv.ParseInt(boot, 10, 64)
	if err != nil || errBoot != nil {
		return time.Time{}
	}
	return time.Unix(at+ticks/perSecond, 0)
}

// newestEdit returns the latest modification time of the files, or the zero time if
// none can be read.
func (e fileReader) newestEdit(names []string) (newest time.Time) {
	for _, name := range names {
		if info, err := fs.Stat(e.root, strings.TrimPrefix(name, "/")); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest
}

// readGanesha reads the state of nfs-ganesha. Its exports in effect come from its MOUNT
// service.
func (o Options) readGanesha(ctx context.Context, see fileReader) *Server {
	process, runs := see.findProcess("ganesha.nfsd")
	text, _ := see.readText(ganeshaFile)
	g := ParseGanesha(text, "/"+ganeshaFile, see.includedTexts)
	s := &Server{
		Name: ganeshaName, Running: answerOf(runs), V3: answerOf(len(g.Exports) > 0),
		Written: g.Exports, NoV3: g.NoV3, Problems: g.Problems, Paths: true, Ordered: true,
		reload: "systemctl reload nfs-ganesha && showmount -e", start: "systemctl enable --now nfs-ganesha",
	}
	if !runs {
		return s
	}
	s.started, s.edited = see.startTime(process), see.newestEdit(append(filesOf(s), "/"+ganeshaFile))
	if live, err := o.listExports(ctx); err == nil {
		s.Live, s.LiveFrom = live, "its list of exports"
	}
	return s
}

// includedTexts returns the files that %include or %dir of a ganesha.conf names. Files
// that cannot be read are omitted.
func (e fileReader) includedTexts(directive, name string) (texts []namedText) {
	if !path.IsAbs(name) {
		name = path.Join("/", path.Dir(ganeshaFile), name)
	}
	name = path.Clean(name)[1:]
	names := []string{name}
	if directive == "%dir" {
		names, _ = fs.Glob(e.root, name+"/*.conf")
	}
	for _, n := range names {
		if text, ok := e.readText(n); ok {
			texts = append(texts, namedText{"/" + n, text})
		}
	}
	return texts
}
