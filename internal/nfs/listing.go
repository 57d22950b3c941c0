package nfs

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// entry is a name in a folder, as READDIR returns it.
type entry struct {
	name   string // name as bytes, without a slash
	ino    uint64 // inode number, which clients see as fileid3
	cookie uint64 // position after the entry: a client continues from there
}

// Cookies of the folder itself, of its parent, and the lowest of other names.
const (
	cookieDot    = 1 // cookie of "."
	cookieDotDot = 2 // cookie of ".."
	firstCookie  = 3 // lowest cookie of other names
)

// cookieOf returns the cookie of a name: a hash of it. Therefore a listing can continue after a change
// of the folder or a restart, and returns every name that existed throughout exactly once.
func cookieOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash never fails
	v := h.Sum64()
	v ^= v >> 32 // FNV's high bits depend little on the last characters
	v *= 0x9e3779b97f4a7c15
	return max(v>>1, firstCookie) // a client may store it in a signed off_t
}

// listing caches the names of a folder. It is valid while the folder's mtime and ctime are the same.
type listing struct {
	entries []entry // names in the order of their cookies; nil if nothing is cached
	mtime   nfsTime // the folder's mtime when it was read
	ctime   nfsTime // the folder's ctime when it was read
}

// settled is the age that a folder's mtime must have for its names to be cached. File systems store
// times in kernel clock ticks, so a second change in one tick would not be visible.
const settled = time.Second

// listNames returns the names in an open folder in the order of their cookies, without "." and "..".
// n.changing must be held. The caller must not change the result.
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

// sortByCookie sorts the entries by cookie. Names with the same hash are sorted by name, and get
// cookies one apart.
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

// behindCookie returns the entries with higher cookies. The entry of the cookie may be deleted
// meanwhile.
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
	direntIno    = 0  // offset of the inode number, 8 bytes
	direntReclen = 16 // offset of the entry's length, 2 bytes
	direntType   = 18 // offset of the DT_ constant, 1 byte
	direntName   = 19 // offset of the name, which ends with a zero byte

	direntBuffer = 32 << 10 // buffer of one getdents64 call, in bytes
)

// readNames reads an open folder, in the order of the file system. It skips "." and "..", and
// everything but files, folders and links.
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

// appendDirents appends the entries of a buffer that getdents64 filled.
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

// isShown reports whether a directory entry of that DT_ type can be visible. The type is unknown on
// some file systems; then a later look-up decides.
func isShown(kind byte) bool {
	switch kind {
	case unix.DT_REG, unix.DT_DIR, unix.DT_LNK, unix.DT_UNKNOWN:
		return true
	}
	return false
}
