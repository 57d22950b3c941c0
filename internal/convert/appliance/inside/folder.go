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

// A folder is the root of a tree of files. Links are followed within it: the kernel treats it as the
// root of all paths (openat2 with RESOLVE_IN_ROOT).
type folder struct{ root *os.File }

// openFolder opens the folder at path, which must not be a symbolic link.
func openFolder(path string) (*folder, error) {
	f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	return &folder{f}, err
}

// close closes the folder.
func (f *folder) close() error { return f.root.Close() }

// openPath opens the file at path. The error wraps fs.ErrNotExist if a part of the path is not a
// folder.
func (f *folder) openPath(path string, flags uint64, mode uint32) (*os.File, error) {
	// openat2 does not accept an empty path.
	if path == "" {
		path = "."
	}
	// Magic links, as in /proc, could lead out of the root.
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Mode: uint64(mode), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(int(f.root.Fd()), path, &how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue // no other process moves folders here
		// convert.FileSystem reports such a path as missing.
		case errors.Is(err, unix.ENOTDIR):
			return nil, fmt.Errorf("%s: %w: %w", path, fs.ErrNotExist, err)
		case err != nil:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}

// openFile opens a regular file and returns its size. It does not block for pipes and devices.
func (f *folder) openFile(path string, flags uint64) (*os.File, int64, error) {
	// O_NONBLOCK returns at once for a pipe, and O_NOCTTY protects the console.
	file, err := f.openPath(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fault.New(fault.Unsupported, "%s is not a regular file", path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

// readFile returns the content of a file of at most limit bytes.
func (f *folder) readFile(path string, limit int64) ([]byte, error) {
	file, size, err := f.openFile(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if size > limit {
		return nil, fault.New(fault.Unsupported, "%s has %d bytes, more than the limit of %d", path, size, limit)
	}
	return io.ReadAll(io.LimitReader(file, limit))
}

// size returns the size of the file or folder at path.
func (f *folder) size(path string) (int64, error) {
	// O_PATH works for every kind of file and does not need read permission.
	file, err := f.openPath(path, unix.O_PATH, 0)
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

// listNames returns the names in the folder at path.
func (f *folder) listNames(path string) ([]string, error) {
	dir, err := f.openPath(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// readLink returns the target of the symbolic link at path.
func (f *folder) readLink(path string) (string, error) {
	dir, name, err := f.openParent(path)
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

// openParent opens the folder that contains the last name of a path, and returns that name.
func (f *folder) openParent(p string) (*os.File, string, error) {
	p = strings.TrimRight(p, "/")
	name := path.Base(p)
	// Such a path has no last name to create or to read.
	if name == "." || name == ".." || name == "/" {
		return nil, "", fault.New(fault.Invalid, "%q is not a valid file name", name)
	}
	dir, err := f.openPath(strings.TrimSuffix(p, name), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	return dir, name, err
}

// An owner is the owner and mode of a new file.
type owner struct {
	mode     uint32 // permission bits
	uid, gid int
}

// writeFile replaces the content of a file, which keeps its owner, mode and attributes. A missing file
// is created.
func (f *folder) writeFile(path string, data []byte, o owner) error {
	file, _, err := f.openFile(path, unix.O_WRONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return f.createFile(path, data, o)
	}
	if err != nil {
		return err
	}
	// Truncation and a new write keep the inode, and so its owner, mode and attributes.
	if err := file.Truncate(0); err != nil {
		return errors.Join(err, file.Close())
	}
	return writeAndClose(file, data)
}

// createFile creates a file with the owner and the SELinux label of its folder.
func (f *folder) createFile(path string, data []byte, o owner) error {
	dir, _, err := f.openParent(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	file, err := f.openPath(path, unix.O_WRONLY|unix.O_CREAT, o.mode)
	if err != nil {
		return err
	}
	// The umask may have removed bits of the mode, and the owner is root.
	if err := o.applyTo(file, dir); err != nil {
		return errors.Join(err, file.Close())
	}
	return writeAndClose(file, data)
}

// appendFile adds data to the end of an existing file.
func (f *folder) appendFile(path string, data []byte) error {
	file, _, err := f.openFile(path, unix.O_WRONLY|unix.O_APPEND)
	if err != nil {
		return err
	}
	return writeAndClose(file, data)
}

// writeAndClose writes data and closes the file.
func writeAndClose(file *os.File, data []byte) error {
	_, err := file.Write(data)
	return errors.Join(err, file.Close())
}

// makeFolder creates a folder with the owner and the SELinux label of its parent.
func (f *folder) makeFolder(path string, o owner) error {
	above, name, err := f.openParent(path)
	if err != nil {
		return err
	}
	defer above.Close()
	if err := unix.Mkdirat(int(above.Fd()), name, o.mode); err != nil {
		return &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	// The new folder is opened to set its owner and label.
	dir, err := f.openPath(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return o.applyTo(dir, above)
}

// makeSymlink creates a symbolic link with the SELinux label of its folder.
func (f *folder) makeSymlink(path, target string) error {
	above, name, err := f.openParent(path)
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
	// There is no fsetxattr for a symbolic link, so its path leads through the folder's descriptor.
	return unix.Lsetxattr(fmt.Sprintf("/proc/self/fd/%d/%s", above.Fd(), name), labelName, label, 0)
}

// applyTo sets owner and mode of a new file, and the SELinux label of its folder.
func (o owner) applyTo(file, above *os.File) error {
	err := errors.Join(file.Chown(o.uid, o.gid), file.Chmod(fs.FileMode(o.mode)))
	if label := labelOf(above); label != nil && err == nil {
		err = unix.Fsetxattr(int(file.Fd()), labelName, label, 0)
	}
	return err
}

// labelName is the extended attribute with the SELinux label.
const labelName = "security.selinux"

// labelOf returns the SELinux label of a folder; nil if it has none.
func labelOf(dir *os.File) []byte {
	label := make([]byte, 4096)
	n, err := unix.Fgetxattr(int(dir.Fd()), labelName, label)
	if err != nil {
		return nil
	}
	return label[:n]
}

// flush writes all changes of the file system to its disk.
func (f *folder) flush() error { return unix.Syncfs(int(f.root.Fd())) }
