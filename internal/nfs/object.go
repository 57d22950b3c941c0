package nfs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// object is a file, folder or link that a descriptor (O_PATH) refers to. Calls on it affect this
// object, even if its name belongs to another one by now.
type object struct {
	fd   int   // descriptor without read and write access
	attr *attr // attributes at the time of opening
}

// flags of openat: the descriptor of a link refers to the link itself
const openObject = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC

// openAt opens name in the folder fd. It does not follow links. The caller closes the object.
func openAt(fd int, name string) (*object, error) {
	child, err := unix.Openat(fd, name, openObject, 0)
	if err != nil {
		return nil, err
	}
	return newObject(child)
}

// newObject returns the object of a descriptor. It owns fd, and closes it on failure.
func newObject(fd int) (*object, error) {
	a, err := statAt(fd, "")
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &object{fd: fd, attr: a}, nil
}

// close closes the descriptor. It cannot fail for O_PATH.
func (o *object) close() { _ = unix.Close(o.fd) }

// path returns a path to the object for calls without a descriptor argument. It requires /proc.
func (o *object) path() string { return fmt.Sprintf("/proc/self/fd/%d", o.fd) }

// open opens the file for reading and, if permitted, for writing. A setuid or setgid program is not
// opened for writing: root could change its content and the kernel would keep its rights.
func (o *object) open() (*os.File, error) {
	if o.attr.mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		return os.OpenFile(o.path(), os.O_RDONLY, 0)
	}
	f, err := os.OpenFile(o.path(), os.O_RDWR, 0)
	if os.IsPermission(err) || isErrno(err, unix.EROFS) {
		f, err = os.OpenFile(o.path(), os.O_RDONLY, 0)
	}
	return f, err
}

// stat returns the current attributes.
func (o *object) stat() (*attr, error) { return statAt(o.fd, "") }

// chmod sets the permission bits. It must not be called for links.
func (o *object) chmod(mode uint32) error { return unix.Chmod(o.path(), mode) }

// keepID as a user or group leaves it unchanged, as in chown(2).
const keepID = -1

// chown sets user and group. The kernel clears setuid and setgid bits.
func (o *object) chown(uid, gid int) error {
	return unix.Fchownat(o.fd, "", uid, gid, unix.AT_EMPTY_PATH)
}

// setTimes sets the times. UTIME_OMIT and UTIME_NOW as nanoseconds have the meaning of utimensat(2).
func (o *object) setTimes(atime, mtime unix.Timespec) error {
	return unix.UtimesNanoAt(unix.AT_FDCWD, o.path(), []unix.Timespec{atime, mtime}, 0)
}

// readLink returns the text of a symbolic link.
func (o *object) readLink() (string, error) {
	p := make([]byte, maxPath)
	n, err := unix.Readlinkat(o.fd, "", p)
	if err != nil {
		return "", err
	}
	return string(p[:n]), nil
}

// sync writes the names of a folder to the medium.
func (o *object) sync() error {
	fd, err := unix.Openat(o.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}
