package nfs

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// birthTick is more than the clock tick that file systems keep times of birth to.
const birthTick = 20 * time.Millisecond

// graves are the files that were removed within the tick of their birth. For the rest of it a
// new one could get the inode number and the time of birth of the first, and so its handle.
type removedFiles struct {
	mu    sync.Mutex
	until map[inodeID]time.Time // when no other can be born in the same tick any more
}

// add remembers a file whose last name is gone. Its inode must still be held.
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

// has reports whether a new file cannot be told from one that was removed.
func (g *removedFiles) has(id inodeID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	until, ok := g.until[id]
	return ok && time.Now().Before(until)
}

// makeUnique makes a name with create, which holds what it made, and makes it again as long as
// that has the identity of a file that was removed: held as it is, its inode goes to nobody
// else meanwhile. remove takes the name away again.
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

// makeFile makes an empty file, open for writing.
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

// makeFolder makes an empty folder.
func (x *export) makeFolder(folder *object, name string) (*object, error) {
	return x.makeUnique(func() (*object, error) {
		if err := unix.Mkdirat(folder.fd, name, folderMode); err != nil {
			return nil, err
		}
		return openAt(folder.fd, name)
	}, func() error { return unix.Unlinkat(folder.fd, name, unix.AT_REMOVEDIR) })
}

// makeLink makes a symbolic link.
func (x *export) makeLink(folder *object, name, to string) (*object, error) {
	return x.makeUnique(func() (*object, error) {
		if err := unix.Symlinkat(to, folder.fd, name); err != nil {
			return nil, err
		}
		return openAt(folder.fd, name)
	}, func() error { return unix.Unlinkat(folder.fd, name, 0) })
}
