package inside

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// A folder is the root of a tree of files. Links are followed as if it were the root of
// everything, which the kernel sees to (openat2, RESOLVE_IN_ROOT).
type folder struct{ root *os.File }

func openFolder(path string) (*folder, error) {
	f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	return &folder{f}, err
}

func (f *folder) close() error { return f.root.Close() }

// open opens the file at path.
func (f *folder) open(path string, flags uint64, mode uint32) (*os.File, error) {
	if path == "" {
		path = "."
	}
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Mode: uint64(mode), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(int(f.root.Fd()), path, &how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue // no other process moves folders here
		case errors.Is(err, unix.ENOTDIR):
			return nil, fmt.Errorf("%s: %w: %w", path, fs.ErrNotExist, err)
		case err != nil:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}

// file opens a regular file; a pipe does not keep it waiting.
func (f *folder) file(path string, flags uint64) (*os.File, int64, error) {
	file, err := f.open(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fault.New(fault.Unsupported, "%s is no file", path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

func (f *folder) read(path string, limit int64) ([]byte, error) {
	file, size, err := f.file(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if size > limit {
		return nil, fault.New(fault.Unsupported, "%s has %d bytes, %d are read at most", path, size, limit)
	}
	return io.ReadAll(io.LimitReader(file, limit))
}

func (f *folder) size(path string) (int64, error) {
	file, err := f.open(path, unix.O_PATH, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *folder) names(path string) ([]string, error) {
	dir, err := f.open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

func (f *folder) readlink(path string) (string, error) {
	dir, name, err := f.above(path)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), name, target)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: path, Err: err}
	}
	return string(target[:n]), nil
}

// above opens the folder that path's last name is in.
func (f *folder) above(p string) (*os.File, string, error) {
	p = strings.TrimRight(p, "/")
	name := path.Base(p)
	if name == "." || name == ".." || name == "/" {
		return nil, "", fault.New(fault.Invalid, "%q is no name", name)
	}
	dir, err := f.open(strings.TrimSuffix(p, name), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	return dir, name, err
}

// An owner is what a new file is made with.
type owner struct {
	mode     uint32
	uid, gid int
}

// write replaces a file's content; owner, mode and attributes stay. One that is not there is made.
func (f *folder) write(path string, data []byte, o owner) error {
	file, _, err := f.file(path, unix.O_WRONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return f.create(path, data, o)
	}
	if err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return errors.Join(err, file.Close())
	}
	return fill(file, data)
}

func (f *folder) create(path string, data []byte, o owner) error {
	dir, _, err := f.above(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	file, err := f.open(path, unix.O_WRONLY|unix.O_CREAT, o.mode)
	if err != nil {
		return err
	}
	if err := o.give(file, dir); err != nil {
		return errors.Join(err, file.Close())
	}
	return fill(file, data)
}

// append adds to a file.
func (f *folder) append(path string, data []byte) error {
	file, _, err := f.file(path, unix.O_WRONLY|unix.O_APPEND)
	if err != nil {
		return err
	}
	return fill(file, data)
}

// fill writes data and closes.
func fill(file *os.File, data []byte) error {
	_, err := file.Write(data)
	return errors.Join(err, file.Close())
}

func (f *folder) mkdir(path string, o owner) error {
	above, name, err := f.above(path)
	if err != nil {
		return err
	}
	defer above.Close()
	if err := unix.Mkdirat(int(above.Fd()), name, o.mode); err != nil {
		return &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	dir, err := f.open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return o.give(dir, above)
}

func (f *folder) symlink(path, target string) error {
	above, name, err := f.above(path)
	if err != nil {
		return err
	}
	defer above.Close()
	if err := unix.Symlinkat(target, int(above.Fd()), name); err != nil {
		return &os.PathError{Op: "symlink", Path: path, Err: err}
	}
	label := labelOf(above)
	if label == nil {
		return nil
	}
	return unix.Lsetxattr(fmt.Sprintf("/proc/self/fd/%d/%s", above.Fd(), name), labelName, label, 0)
}

// give sets the owner, mode and times of a new file, with the SELinux label of its folder.
func (o owner) give(file, above *os.File) error {
	err := errors.Join(file.Chown(o.uid, o.gid), file.Chmod(fs.FileMode(o.mode)))
	if label := labelOf(above); label != nil && err == nil {
		err = unix.Fsetxattr(int(file.Fd()), labelName, label, 0)
	}
	return err
}

const labelName = "security.selinux"

// labelOf returns a folder's label; nil where it has none.
func labelOf(dir *os.File) []byte {
	label := make([]byte, 4096)
	n, err := unix.Fgetxattr(int(dir.Fd()), labelName, label)
	if err != nil {
		return nil
	}
	return label[:n]
}

// flush has the file system written to its disk.
func (f *folder) flush() error { return unix.Syncfs(int(f.root.Fd())) }
