package nfs

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// birthTick is longer than the clock tick in which file systems count times of birth.
const birthTick = 20 * time.Millisecond

// removedFiles contains the identities of files that were removed within birthTick of their birth. During
// that time a new file could get the same inode number and time of birth, and therefore the same handle.
type removedFiles struct {
	mu    sync.Mutex            // guards until
	until map[inodeID]time.Time // time from which the identity cannot occur again
}

// add records the identity of a file without names. The file must still be open, so that its inode is
// in use.
func (g *removedFiles) add(id inodeID) {
	now := time.Now()
	if now.Sub(time.Unix(0, id.birth)) > birthTick {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for other, until := range g.until {
		if now.After(until) {
			delete(g.until, other)
		}
	}
	if g.until == nil {
		g.until = make(map[inodeID]time.Time)
	}
	g.until[id] = now.Add(birthTick)
}

// has reports whether a new file has the identity of a removed one.
func (g *removedFiles) has(id inodeID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	until, ok := g.until[id]
	return ok && time.Now().Before(until)
}

// makeUnique calls create until the new object does not have the identity of a removed file. Unsuitable
// objects stay open until it returns, so that their inodes are not used again; remove deletes their
// name. The caller closes the result.
func (x *export) makeUnique(create func() (*object, error), remove func() error) (*object, error) {
	for {
		o, err := create()
		if err != nil {
			return nil, err
		}
		if !x.removed.has(o.attr.id) {
			return o, nil
		}
		defer o.close()
		if err := remove(); err != nil {
			return nil, err
		}
	}
}

// makeFile creates an empty file, open for writing, with privateMode. The name must not exist.
func (x *export) makeFile(folder *object, name string) (*object, error) {
	const flags = unix.O_CREAT | unix.O_EXCL | unix.O_RDWR | unix.O_NOFOLLOW | unix.O_CLOEXEC
	return x.makeUnique(func() (*object, error) {
		fd, err := unix.Openat(folder.fd, name, flags, privateMode)
		if err != nil {
			return nil, err
		}
		return newObject(fd)
	}, func() error { return unix.Unlinkat(folder.fd, name, 0) })
}

// makeFolder creates an empty folder. The name must not exist.
func (x *export) makeFolder(folder *object, name string) (*object, error) {
	return x.makeUnique(func() (*object, error) {
		if err := unix.Mkdirat(folder.fd, name, folderMode); err != nil {
			return nil, err
		}
		return openAt(folder.fd, name)
	}, func() error { return unix.Unlinkat(folder.fd, name, unix.AT_REMOVEDIR) })
}

// makeLink creates a symbolic link with the text to. The name must not exist.
func (x *export) makeLink(folder *object, name, to string) (*object, error) {
	return x.makeUnique(func() (*object, error) {
		if err := unix.Symlinkat(to, folder.fd, name); err != nil {
			return nil, err
		}
		return openAt(folder.fd, name)
	}, func() error { return unix.Unlinkat(folder.fd, name, 0) })
}
