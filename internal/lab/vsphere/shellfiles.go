package vsphere

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/decamp/decamp/internal/lab/nfsclient"
	"github.com/decamp/decamp/internal/lab/shell"
)

// A shellText is an error in the words of busybox or esxcli, which callers may search for.
type shellText string

// Error returns the text.
func (e shellText) Error() string { return string(e) }

// Messages of a host's shell for a file that cannot be opened.
const (
	errNoFile   = shellText("No such file or directory") // ENOENT
	errBusyFile = shellText("Device or resource busy")   // EBUSY: a running VM has the file open
	errROFS     = shellText("Read-only file system")     // EROFS: the file is on a datastore of the emulator
	errIsDir    = shellText("Is a directory")            // EISDIR

	errFileExists = shellText("File exists") // EEXIST
)

// maxMemFile limits the size of a file on the RAM disk, in bytes.
const maxMemFile = 32 << 20

// hostFiles are the files that a host's shell can access: a RAM disk, and the datastores below
// /vmfs/volumes. The datastores of the emulator are read-only.
type hostFiles struct {
	h *shellHost // host of the files

	mu   sync.Mutex        // guards the fields below
	mem  map[string][]byte // files of the RAM disk by absolute name
	dirs map[string]bool   // folders of the RAM disk by absolute name
}

// newHostFiles returns a RAM disk with the usual folders.
func newHostFiles(h *shellHost) *hostFiles {
	f := &hostFiles{h: h, mem: map[string][]byte{}, dirs: map[string]bool{}}
	for _, d := range []string{"/", "/tmp", "/var", "/var/tmp", "/var/log", "/scratch", "/etc", "/etc/ssh", "/etc/ssh/keys-root", "/vmfs", volumesRoot} {
		f.dirs[d] = true
	}
	return f
}

// A hostFile is a file or folder, for ls and stat.
type hostFile struct {
	name string // name without a path
	size int64  // length in bytes; 0 for a folder
	dir  bool   // whether it is a folder
}

// fileText returns a copy of a file of the RAM disk; nil if it does not exist.
func (f *hostFiles) fileText(name string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.Clone(f.mem[name])
}

// openFile opens a file for a redirection.
func (f *hostFiles) openFile(name string, mode shell.Mode) (io.ReadWriteCloser, error) {
	if mode == shell.Read {
		r, size, err := f.openReader(f.h.jobContext(), name)
		if err != nil {
			return nil, err
		}
		return &memWriter{Reader: io.NewSectionReader(r, 0, size)}, nil
	}
	return f.createFile(name, mode == shell.Write)
}

// createFile opens a file of the RAM disk for writing at its end.
func (f *hostFiles) createFile(name string, truncate bool) (io.ReadWriteCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case strings.HasPrefix(name, volumesRoot+"/"):
		return nil, errROFS
	case f.dirs[name]:
		return nil, errIsDir
	case !f.dirs[path.Dir(name)]:
		return nil, errNoFile
	}
	if truncate || f.mem[name] == nil {
		f.mem[name] = []byte{}
	}
	return &memWriter{f: f, name: name}, nil
}

// A memWriter appends to a file of the RAM disk, or reads any file.
type memWriter struct {
	io.Reader
	f    *hostFiles // files of the host; nil for a file that is open for reading
	name string     // absolute name
}

// Write appends p to the file. It fails for a file that is open for reading.
func (w *memWriter) Write(p []byte) (int, error) {
	if w.f == nil {
		return 0, fs.ErrPermission
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if len(w.f.mem[w.name])+len(p) > maxMemFile {
		return 0, shellText("No space left on device")
	}
	w.f.mem[w.name] = append(w.f.mem[w.name], p...)
	return len(p), nil
}

// Close does nothing.
func (w *memWriter) Close() error { return nil }

// findVolume returns the datastore or the mount of a path, and the path in it. ok is false for paths
// outside of /vmfs/volumes; ds and n are nil for an unknown volume.
func (f *hostFiles) findVolume(name string) (ds *datastore, n *nasMount, rest string, ok bool) {
	p, err := parseVolumePath(name)
	if err != nil {
		return nil, nil, "", false
	}
	if n = f.h.lab.nasMounts.findMount(f.h.ref, p.datastore); n == nil {
		if dc := f.h.lab.hostDatacenter(f.h.ref); dc != nil {
			ds = dc.findDatastore(p.datastore)
		}
	}
	return ds, n, p.path, true
}

// openReader opens a file and returns its length. A file that a running VM has open is busy.
func (f *hostFiles) openReader(ctx context.Context, name string) (io.ReaderAt, int64, error) {
	ds, n, rest, ok := f.findVolume(name)
	switch {
	case !ok:
		f.mu.Lock()
		defer f.mu.Unlock()
		if data, ok := f.mem[name]; ok {
			return bytes.NewReader(bytes.Clone(data)), int64(len(data)), nil
		}
		if f.dirs[name] {
			return nil, 0, errIsDir
		}
		return nil, 0, errNoFile
	case n != nil:
		return nasReader(ctx, n, rest)
	case ds == nil:
		return nil, 0, errNoFile
	}
	if d := ds.findFile(rest); d != nil {
		if f.h.lab.isLocked(d) {
			return nil, 0, errBusyFile
		}
		return &ratedReader{ctx, d.content, ds.rate}, d.content.Size(), nil
	}
	text, err := ds.root.ReadFile(rest)
	if err != nil {
		return nil, 0, errNoFile
	}
	return bytes.NewReader(text), int64(len(text)), nil
}

// nasReader opens a file of an NFS datastore.
func nasReader(ctx context.Context, n *nasMount, name string) (io.ReaderAt, int64, error) {
	a, err := n.client.Stat(ctx, name)
	if err != nil {
		return nil, 0, shellError(err)
	}
	if a.Type == nfsclient.Directory {
		return nil, 0, errIsDir
	}
	return readerAt(func(p []byte, off int64) (int, error) { return n.client.ReadAt(ctx, name, p, off) }), int64(a.Size), nil
}

// A readerAt is a function as an io.ReaderAt.
type readerAt func(p []byte, off int64) (int, error)

// ReadAt implements io.ReaderAt.
func (r readerAt) ReadAt(p []byte, off int64) (int, error) { return r(p, off) }

// shellError returns the shell's error for an error of a file system.
func shellError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errNoFile
	}
	return err
}

// statFile returns size and type of a file or folder, also of a file that is busy.
func (f *hostFiles) statFile(ctx context.Context, name string) (hostFile, error) {
	if f.isDir(ctx, name) {
		return hostFile{name: path.Base(name), dir: true}, nil
	}
	if ds, _, rest, ok := f.findVolume(name); ok && ds != nil {
		if d := ds.findFile(rest); d != nil { // also one that cannot be opened
			return hostFile{name: path.Base(name), size: d.content.Size()}, nil
		}
	}
	_, size, err := f.openReader(ctx, name)
	return hostFile{name: path.Base(name), size: size}, err
}

// isDir reports whether the name is a folder.
func (f *hostFiles) isDir(ctx context.Context, name string) bool {
	ds, n, rest, ok := f.findVolume(name)
	switch {
	case !ok:
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.dirs[name]
	case n != nil:
		a, err := n.client.Stat(ctx, rest)
		return err == nil && a.Type == nfsclient.Directory
	case ds != nil && rest == "":
		return true
	case ds != nil:
		info, err := ds.root.Stat(rest)
		return err == nil && info.IsDir()
	}
	return false
}

// listFolder returns the names in a folder, sorted.
func (f *hostFiles) listFolder(ctx context.Context, name string) (names []string, err error) {
	ds, n, rest, ok := f.findVolume(name)
	switch {
	case name == volumesRoot:
		names = f.volumeNames()
	case !ok:
		names = f.inMemory(name)
	case n != nil:
		entries, err := n.client.ReadDir(ctx, rest)
		if err != nil {
			return nil, shellError(err)
		}
		for _, e := range entries {
			names = append(names, e.Name)
		}
	case ds != nil:
		entries, err := folderTarget{dc: ds.dc, ds: ds, path: rest}.listFiles()
		if err != nil {
			return nil, errNoFile
		}
		for _, e := range entries {
			names = append(names, strings.TrimSuffix(e.name, "/"))
		}
	default:
		return nil, errNoFile
	}
	slices.Sort(names)
	return names, nil
}

// volumeNames returns the names of the host's datastores.
func (f *hostFiles) volumeNames() (names []string) {
	for _, ds := range f.h.lab.hostDatacenter(f.h.ref).datastores {
		names = append(names, ds.spec.Name)
	}
	for _, n := range f.h.lab.nasMounts.mountsOf(f.h.ref) {
		names = append(names, n.spec.LocalPath)
	}
	return names
}

// inMemory returns the names in a folder of the RAM disk.
func (f *hostFiles) inMemory(dir string) (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.namesBelow(dir)
}

// namesBelow implements inMemory. mu must be held.
func (f *hostFiles) namesBelow(dir string) (names []string) {
	for _, all := range []func(func(string) bool){maps.Keys(f.mem), maps.Keys(f.dirs)} {
		for name := range all {
			if path.Dir(name) == dir && name != "/" {
				names = append(names, path.Base(name))
			}
		}
	}
	return names
}

// removeFile removes a file or an empty folder.
func (f *hostFiles) removeFile(ctx context.Context, name string) error {
	ds, n, rest, ok := f.findVolume(name)
	switch {
	case ok && n != nil:
		return shellError(n.client.Remove(ctx, rest))
	case ok && ds != nil:
		return errROFS
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.mem[name]; !there && !f.dirs[name] {
		return errNoFile
	}
	if len(f.namesBelow(name)) > 0 {
		return shellText("Directory not empty")
	}
	delete(f.mem, name)
	delete(f.dirs, name)
	return nil
}

// renameFile renames a file or a folder of the RAM disk. It replaces an existing file.
func (f *hostFiles) renameFile(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, isFile := f.mem[from]
	switch {
	case !isFile && !f.dirs[from], !f.dirs[path.Dir(to)]:
		return errNoFile
	case f.dirs[to]:
		return errIsDir
	case !isFile:
		f.renameDir(from, to)
		return nil
	}
	f.mem[to] = data
	delete(f.mem, from)
	return nil
}

// renameDir renames a folder with its content. mu must be held.
func (f *hostFiles) renameDir(from, to string) {
	moved := func(name string) (string, bool) {
		rest, below := strings.CutPrefix(name, from)
		return to + rest, below && (rest == "" || rest[0] == '/')
	}
	for name, data := range maps.Clone(f.mem) {
		if now, ok := moved(name); ok {
			delete(f.mem, name)
			f.mem[now] = data
		}
	}
	for name := range maps.Clone(f.dirs) {
		if now, ok := moved(name); ok {
			delete(f.dirs, name)
			f.dirs[now] = true
		}
	}
}

// makeFolder creates a folder. Without parents an existing folder is an error, so that of several
// callers only one succeeds; with parents it also creates the folders above.
func (f *hostFiles) makeFolder(ctx context.Context, name string, parents bool) error {
	ds, n, rest, ok := f.findVolume(name)
	switch {
	case ok && n != nil:
		return n.client.MkdirAll(ctx, rest)
	case ok && ds != nil:
		return errROFS
	case ok:
		return errNoFile
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, isFile := f.mem[name]
	switch {
	case isFile, f.dirs[name] && !parents:
		return errFileExists
	case !f.dirs[path.Dir(name)] && !parents:
		return errNoFile
	}
	for d := name; !f.dirs[d]; d = path.Dir(d) {
		f.dirs[d] = true
	}
	return nil
}

// jobContext returns the context of work outside of sessions, which ends when the host loses power.
func (h *shellHost) jobContext() context.Context {
	h.lab.jobs.mu.Lock()
	defer h.lab.jobs.mu.Unlock()
	return h.lab.jobs.ctx
}
