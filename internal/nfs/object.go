package nfs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// object is a file, folder or link that is held by a descriptor of its own (O_PATH): what
// is done to it is done to this one, whatever its name has come to mean.
type object struct {
	fd   int
	attr *attr // when it was opened
}

const openObject = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC

// openAt holds name in the folder fd. It follows no link.
func openAt(fd int, name string) (*object, error) {
	child, err := unix.Openat(fd, name, openObject, 0)
	if err != nil {
		return nil, err
	}
	return newObject(child)
}

// newObject makes an object of a descriptor, which it closes if that fails.
func newObject(fd int) (*object, error) {
	a, err := statAt(fd, "")
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &object{fd: fd, attr: a}, nil
}

// close lets go. Closing a descriptor of this kind cannot fail.
func (o *object) close() { _ = unix.Close(o.fd) }

// path names the object to calls that take no descriptor.
func (o *object) path() string { return fmt.Sprintf("/proc/self/fd/%d", o.fd) }

// open opens the file for reading and, if that is allowed, for writing. A setuid or setgid program is not
// opened for writing: the kernel lets root change its content and keep its rights.
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

func (o *object) stat() (*attr, error) { return statAt(o.fd, "") }

func (o *object) chmod(mode uint32) error { return unix.Chmod(o.path(), mode) }

// keepID leaves a user or group as it is.
const keepID = -1

func (o *object) chown(uid, gid int) error {
	return unix.Fchownat(o.fd, "", uid, gid, unix.AT_EMPTY_PATH)
}

// setTimes sets the times; unix.UTIME_OMIT and UTIME_NOW as nanoseconds have their usual meaning.
func (o *object) setTimes(atime, mtime unix.Timespec) error {
	return unix.UtimesNanoAt(unix.AT_FDCWD, o.path(), []unix.Timespec{atime, mtime}, 0)
}

// readLink returns where a link leads.
func (o *object) readLink() (string, error) {
	p := make([]byte, maxPath)
	n, err := unix.Readlinkat(o.fd, "", p)
	if err != nil {
		return "", err
	}
	return string(p[:n]), nil
}

// sync makes the names in a folder durable.
func (o *object) sync() error {
	fd, err := unix.Openat(o.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}
