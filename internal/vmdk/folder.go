package vmdk

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// Folder returns the files of a local folder. It opens nothing outside it, not even by symbolic links.
// The absolute path of a file on a datastore is searched by its last parts, the longest first:
// /vmfs/volumes/ds/base/base.vmdk as ds/base/base.vmdk, then base/base.vmdk, then base.vmdk. Such paths
// are also searched in the folders more.
func Folder(folder string, more ...string) Files {
	return folders(append([]string{folder}, more...))
}

// folders are the Files of local folders. Relative names are opened in the first one only.
type folders []string

// Open implements Files.
func (f folders) Open(_ context.Context, name string) (disk.Source, error) {
	list := f[:1]
	names := []string{name}
	if path.IsAbs(name) {
		list, names = f, pathTails(name)
	}
	for _, n := range names {
		for _, folder := range list {
			src, err := openLocal(folder, n)
			if !errors.Is(err, fs.ErrNotExist) {
				return src, err
			}
		}
	}
	return nil, fault.New(fault.NotFound, "%s is not in %s", name, strings.Join(list, ", ")).
		WithHint("copy it there: a disk needs all files its descriptors name")
}

// pathTails returns the paths, longest first, that an absolute path on a datastore may have in a copy
// of that datastore.
func pathTails(name string) []string {
	var out []string
	name = strings.TrimPrefix(name, datastores)
	for ok := true; ok; _, name, ok = strings.Cut(name, "/") {
		out = append(out, name)
	}
	return out
}

// A localFile is an open file of a folder. It is a disk.Source.
type localFile struct {
	*os.File
	size   int64  // length in bytes when the file was opened
	memory []byte // mapping of the whole file; nil if it is not mapped
}

// openLocal opens a regular file of a folder. It does not follow links out of the folder, and does not
// block on a named pipe.
func openLocal(folder, name string) (disk.Source, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close() // the file stays open
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, localFault(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fault.New(fault.Invalid, "%s is not a file", f.Name()).WithHint("name a .vmdk file")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &localFile{File: f, size: info.Size()}, nil
}

// localFault adds kind and remedy to an error of opening a file.
func localFault(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Denied, "%w", err).WithHint("run as a user who may read the file")
	case errors.Is(err, unix.EMFILE):
		return fault.New(fault.Full, "%w", err).WithHint("allow more open files: ulimit -n 8192")
	}
	return err
}

// Size returns the length of the file when it was opened, in bytes.
func (f *localFile) Size() int64 { return f.size }

// Hints returns no preferences.
func (f *localFile) Hints() disk.Hints { return disk.Hints{} }

// Close unmaps and closes the file.
func (f *localFile) Close() error { return errors.Join(f.unmapFile(), f.File.Close()) }

// ReadAt fills p from off. A file that has become shorter is fault.Conflict: it has a writer.
func (f *localFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := f.checkRead(ctx, disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	n, err := f.File.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == io.EOF {
		return fault.New(fault.Conflict, "%s became shorter while it was read: it ends at %d", f.Name(), off+int64(n)).
			WithHint("read disks without writers: a closed snapshot, or a VM that is powered off")
	}
	return err
}

// checkRead returns an error if r is not in the file or ctx has ended.
func (f *localFile) checkRead(ctx context.Context, r disk.Range) error {
	if err := disk.CheckRange(f.size, r); err != nil {
		return err
	}
	return ctx.Err()
}

// Extents describes r by the holes of the file. If the file system cannot report holes, all of r is
// data.
func (f *localFile) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := f.checkRead(ctx, r); err != nil {
		return nil, err
	}
	var out []disk.Extent
	for off := r.Off; off < r.End(); {
		data := f.seekLimited(off, r.End(), unix.SEEK_DATA)
		end := f.seekLimited(data, r.End(), unix.SEEK_HOLE)
		if data > off {
			out = append(out, disk.Extent{Range: disk.Range{Off: off, Len: data - off}, Kind: disk.Zero})
		}
		if end > data {
			out = append(out, disk.Extent{Range: disk.Range{Off: data, Len: end - data}, Kind: disk.Data})
		}
		off = end
	}
	return out, ctx.Err()
}

// seekLimited returns the offset of the next data or hole from off, at most limit. whence is
// unix.SEEK_DATA or unix.SEEK_HOLE.
func (f *localFile) seekLimited(off, limit int64, whence int) int64 {
	if off >= limit {
		return limit
	}
	at, err := unix.Seek(int(f.Fd()), off, whence)
	switch {
	case err == nil:
		return min(max(at, off), limit)
	case errors.Is(err, unix.ENXIO): // no data up to the end
		return limit
	case whence == unix.SEEK_DATA: // the file system does not report holes
		return off
	}
	return limit
}
