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
	exportsFile = "etc/exports"
	exportsDir  = "etc/exports.d"
	etabFile    = "var/lib/nfs/etab"
	kernelFile  = "proc/fs/nfsd/exports"
	threadsFile = "proc/fs/nfsd/threads"
	versionFile = "proc/fs/nfsd/versions"
	ganeshaFile = "etc/ganesha/ganesha.conf"
)

// maxFile is the limit of a file, in bytes.
const maxFile = 1 << 20

// eyes read a machine's files.
type eyes struct{ root fs.FS }

// text returns a file's text, "" where it cannot be read, and whether it could.
func (e eyes) text(name string) (string, bool) {
	f, err := e.root.Open(name)
	if err != nil {
		return "", false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(b), err == nil
}

// servers returns the NFS servers here that have something to export, whether they run or not.
func (o Options) servers(ctx context.Context) []*Server {
	see := eyes{o.Root}
	var found []*Server
	if s := o.kernel(ctx, see); len(s.all()) > 0 {
		found = append(found, s)
	}
	if s := o.ganesha(ctx, see); len(s.Written)+len(s.NoV3) > 0 { // else it is configured elsewhere, in a cluster or a container
		found = append(found, s)
	}
	return found
}

// kernel looks at the kernel's server. Where its own file system is not mounted, it does not run.
func (o Options) kernel(ctx context.Context, see eyes) *Server {
	s := &Server{Name: kernelName, reload: "exportfs -ra && exportfs -v", start: "systemctl enable --now nfs-server"}
	threads, _ := see.text(threadsFile)
	n, err := strconv.Atoi(strings.TrimSpace(threads))
	s.Running = answer(err == nil && n > 0)
	s.readWritten(see)
	if s.Running == Yes {
		s.readLive(ctx, see, o.Exportfs)
		s.callAsWritten(ctx, o.Resolver)
		s.V3 = see.version3()
	}
	return s
}

// version3 reads "-2 +3 +4 +4.1".
func (e eyes) version3() Answer {
	text, ok := e.text(versionFile)
	words := strings.Fields(text)
	if !ok || len(words) == 0 {
		return Unknown
	}
	return answer(slices.Contains(words, "+3"))
}

// readWritten reads /etc/exports and what ends in .exports beside it, in the order of names.
func (s *Server) readWritten(see eyes) {
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
		text, _ := see.text(name)
		exports, problems := ParseExports(text, "/"+name)
		s.Written, s.Problems = append(s.Written, exports...), append(s.Problems, problems...)
	}
}

// readLive reads what exportfs entered, and puts above it what the kernel holds of it.
func (s *Server) readLive(ctx context.Context, see eyes, exportfs func(context.Context) (string, error)) {
	if text, ok := see.text(etabFile); ok {
		s.Live, s.LiveFrom = ParseTable(text, "/"+etabFile), "/"+etabFile
	} else if text, err := exportfs(ctx); err == nil {
		s.Live, s.LiveFrom = ParseTable(text, "exportfs -v"), "exportfs -v"
	}
	text, ok := see.text(kernelFile)
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

// process finds one of that name that runs, and returns its folder in /proc.
func (e eyes) process(name string) (dir string, runs bool) {
	entries, err := fs.ReadDir(e.root, "proc")
	if err != nil {
		return "", false
	}
	for _, p := range entries {
		if p.Name()[0] < '1' || p.Name()[0] > '9' {
			continue
		}
		dir := "proc/" + p.Name()
		if comm, _ := e.text(dir + "/comm"); strings.TrimSpace(comm) == name {
			return dir, true
		}
	}
	return "", false
}

// started returns when a process was, to the second; zero where /proc does not tell (proc(5)).
func (e eyes) started(dir string) time.Time {
	const afterName, perSecond = 22 - 3, 100 // the field, counted from behind the name; USER_HZ
	stat, _ := e.text(dir + "/stat")
	_, rest, _ := strings.Cut(stat, ") ")
	fields := strings.Fields(rest)
	all, _ := e.text("proc/stat")
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

// edited returns when the newest of some files was changed.
func (e eyes) edited(names []string) (newest time.Time) {
	for _, name := range names {
		if info, err := fs.Stat(e.root, strings.TrimPrefix(name, "/")); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest
}

// ganesha examines nfs-ganesha. Its list of exports comes from its MOUNT service.
func (o Options) ganesha(ctx context.Context, see eyes) *Server {
	process, runs := see.process("ganesha.nfsd")
	text, _ := see.text(ganeshaFile)
	g := ParseGanesha(text, "/"+ganeshaFile, see.include)
	s := &Server{
		Name: ganeshaName, Running: answer(runs), V3: answer(len(g.Exports) > 0),
		Written: g.Exports, NoV3: g.NoV3, Problems: g.Problems, Paths: true, Ordered: true,
		reload: "systemctl reload nfs-ganesha && showmount -e", start: "systemctl enable --now nfs-ganesha",
	}
	if !runs {
		return s
	}
	s.started, s.edited = see.started(process), see.edited(append(files(s), "/"+ganeshaFile))
	if live, err := o.listed(ctx); err == nil {
		s.Live, s.LiveFrom = live, "its list of exports"
	}
	return s
}

// include reads what %include and %dir of a ganesha.conf name.
func (e eyes) include(directive, name string) (texts []namedText) {
	if !path.IsAbs(name) {
		name = path.Join("/", path.Dir(ganeshaFile), name)
	}
	name = path.Clean(name)[1:]
	names := []string{name}
	if directive == "%dir" {
		names, _ = fs.Glob(e.root, name+"/*.conf")
	}
	for _, n := range names {
		if text, ok := e.text(n); ok {
			texts = append(texts, namedText{"/" + n, text})
		}
	}
	return texts
}
