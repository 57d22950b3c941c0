package nfs

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// entry is a name in a folder. cookie is where a listing goes on after it.
type entry struct {
	name   string
	ino    uint64
	cookie uint64
}

// The first two cookies are those of the folder itself and the one above it.
const (
	cookieDot    = 1
	cookieDotDot = 2
	firstCookie  = 3
)

// cookieOf returns where a name stands in its folder. It depends on nothing but the name:
// a listing can go on after the folder changed, or after a restart, and shows every name
// that was there all the time exactly once.
func cookieOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	v := h.Sum64()
	v ^= v >> 32 // FNV's high bits know little of the last characters
	v *= 0x9e3779b97f4a7c15
	return max(v>>1, firstCookie) // a client may keep it in a signed off_t
}

// listing is a folder's names by cookie, as long as the folder did not change.
type listing struct {
	entries []entry
	mtime   nfsTime
	ctime   nfsTime
}

// settled is how long a folder must have been unchanged for its times to be a witness:
// file systems keep them no finer than the kernel's clock ticks.
const settled = time.Second

// listNames returns the names in a folder that is held, without "." and "..". n.changing is held.
func (n *node) listNames(folder *object) ([]entry, error) {
	before, err := folder.stat()
	if err != nil {
		return nil, err
	}
	if l := &n.listing; l.entries != nil && l.mtime == before.mtime && l.ctime == before.ctime {
		return l.entries, nil
	}
	entries, err := folder.readNames()
	if err != nil {
		return nil, err
	}
	sortByCookie(entries)
	n.listing = listing{}
	if time.Since(time.Unix(int64(before.mtime.sec), int64(before.mtime.nsec))) > settled {
		n.listing = listing{entries: entries, mtime: before.mtime, ctime: before.ctime}
	}
	return entries, nil
}

// sortByCookie sorts by cookie. Two names of the same hash stand side by side; the cookie of the
// second is one more.
func sortByCookie(entries []entry) {
	slices.SortFunc(entries, func(a, b entry) int {
		switch {
		case a.cookie < b.cookie:
			return -1
		case a.cookie > b.cookie:
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	for i := 1; i < len(entries); i++ {
		entries[i].cookie = max(entries[i].cookie, entries[i-1].cookie+1)
	}
}

// behindCookie returns the entries behind a cookie.
func behindCookie(entries []entry, cookie uint64) []entry {
	i, found := slices.BinarySearchFunc(entries, cookie, func(e entry, c uint64) int {
		switch {
		case e.cookie < c:
			return -1
		case e.cookie > c:
			return 1
		}
		return 0
	})
	if found {
		i++
	}
	return entries[i:]
}

// Layout of linux_dirent64.
const (
	direntIno    = 0
	direntReclen = 16
	direntType   = 18
	direntName   = 19

	direntBuffer = 32 << 10
)

// readNames reads a folder that is held. What is neither file nor folder nor link is left out.
func (o *object) readNames() ([]entry, error) {
	fd, err := unix.Openat(o.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var entries []entry
	buf := make([]byte, direntBuffer)
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return entries, nil
		}
		entries = appendDirents(entries, buf[:n])
	}
}

func appendDirents(entries []entry, p []byte) []entry {
	for len(p) > direntName {
		n := int(binary.NativeEndian.Uint16(p[direntReclen:]))
		name := string(p[direntName:n])
		if i := strings.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		if !isDot(name) && isShown(p[direntType]) {
			entries = append(entries, entry{name: name, ino: binary.NativeEndian.Uint64(p[direntIno:]), cookie: cookieOf(name)})
		}
		p = p[n:]
	}
	return entries
}

func isShown(kind byte) bool {
	switch kind {
	case unix.DT_REG, unix.DT_DIR, unix.DT_LNK, unix.DT_UNKNOWN:
		return true
	}
	return false
}
