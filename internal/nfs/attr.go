package nfs

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// inodeID identifies a file in its file system. The time of birth separates it from a later file with
// the same inode number.
type inodeID struct {
	ino   uint64 // inode number, which clients see as fileid3
	birth int64  // time of birth in nanoseconds; 0 if the file system does not keep it
}

// nfsTime is nfstime3 (RFC 1813 section 2.6): seconds and nanoseconds.
type nfsTime struct{ sec, nsec uint32 }

// nfsTimeOf converts a time of statx. Seconds beyond 32 bits wrap around.
func nfsTimeOf(t unix.StatxTimestamp) nfsTime { return nfsTime{uint32(t.Sec), t.Nsec} }

// attr contains the attributes of a file that statx returns.
type attr struct {
	id                  inodeID // identity of the file
	dev                 uint64  // device of the file system that contains the file
	format              uint32  // file type: S_IFREG, S_IFDIR, S_IFLNK or another S_IFMT value
	mode                uint32  // permission bits with setuid, setgid and sticky, without the file type
	nlink, uid, gid     uint32  // number of names, and the local owner
	size, used          uint64  // length, and allocated bytes; holes are not allocated
	atime, mtime, ctime nfsTime // times of the last access, write, and change of attributes
}

// sectorSize is the unit of statx's block count, in bytes, for every file system.
const sectorSize = 512

// statAt returns the attributes of name in the folder fd, or of fd itself if name is empty. It does not
// follow symbolic links.
func statAt(fd int, name string) (*attr, error) {
	var x unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if err := unix.Statx(fd, name, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &x); err != nil {
		return nil, err
	}
	a := &attr{
		id:     inodeID{ino: x.Ino},
		dev:    unix.Mkdev(x.Dev_major, x.Dev_minor),
		format: uint32(x.Mode) & unix.S_IFMT,
		mode:   uint32(x.Mode) &^ unix.S_IFMT,
		nlink:  x.Nlink, uid: x.Uid, gid: x.Gid,
		size: x.Size, used: x.Blocks * sectorSize,
		atime: nfsTimeOf(x.Atime), mtime: nfsTimeOf(x.Mtime), ctime: nfsTimeOf(x.Ctime),
	}
	if x.Mask&unix.STATX_BTIME != 0 {
		a.id.birth = x.Btime.Sec*1e9 + int64(x.Btime.Nsec)
	}
	return a, nil
}

// ftype3 (RFC 1813 section 2.6).
const (
	typeReg = 1 // regular file
	typeDir = 2 // folder
	typeLnk = 5 // symbolic link
)

// typeOfFormat maps a file type to ftype3. Types without an entry are not shown to clients.
var typeOfFormat = map[uint32]uint32{unix.S_IFREG: typeReg, unix.S_IFDIR: typeDir, unix.S_IFLNK: typeLnk}

// encodeAttr appends fattr3 (RFC 1813 section 2.6). fsid is the export's.
func encodeAttr(e *xdr.Encoder, a *attr, fsid uint64) {
	for _, v := range [...]uint32{typeOfFormat[a.format], a.mode, a.nlink, a.uid, a.gid} {
		e.Uint32(v)
	}
	e.Uint64(a.size)
	e.Uint64(a.used)
	e.Uint64(0) // rdev: there are no devices
	e.Uint64(fsid)
	e.Uint64(a.id.ino)
	for _, t := range [...]nfsTime{a.atime, a.mtime, a.ctime} {
		encodeTime(e, t)
	}
}

// encodeTime appends nfstime3.
func encodeTime(e *xdr.Encoder, t nfsTime) {
	e.Uint32(t.sec)
	e.Uint32(t.nsec)
}

// postOpAttr is post_op_attr: the attributes of a node after a call. A nil attr encodes as "no
// attributes", which is legal in every reply; the server uses it if it cannot read them.
type postOpAttr struct {
	*attr
	fsid uint64 // identifier of the export, which clients see as the file system
}

// encode appends post_op_attr: a flag, and the attributes if there are any.
func (v postOpAttr) encode(e *xdr.Encoder) {
	e.Bool(v.attr != nil)
	if v.attr != nil {
		encodeAttr(e, v.attr, v.fsid)
	}
}

// wccData is wcc_data: the attributes before and after a call. Clients keep cached data if they know
// both.
type wccData struct {
	before *attr      // attributes at the start; nil unless a lock excludes other changes
	after  postOpAttr // attributes at the end of the call
}

// encode appends wcc_data: size, mtime and ctime from before, and all attributes from after.
func (c wccData) encode(e *xdr.Encoder) {
	e.Bool(c.before != nil)
	if c.before != nil {
		e.Uint64(c.before.size)
		encodeTime(e, c.before.mtime)
		encodeTime(e, c.before.ctime)
	}
	c.after.encode(e)
}

// attrOf returns the attributes of n as clients see them. For a file with a Content it opens the
// Content, because only that has the current size. It fails with statusStale if the file was removed.
func (c *fileCache) attrOf(n *node) (*attr, error) {
	if n.format == formatFile && n.export.Open != nil && !n.file.plain.Load() {
		f, err := c.acquire(n)
		if err == nil {
			defer c.release(n, f)
			return f.readAttr(n)
		}
		if statusOf(err) == statusStale || errors.As(err, new(*contentError)) {
			return nil, err
		}
	}
	o, err := n.export.openNode(n)
	if err != nil {
		return nil, err
	}
	defer o.close()
	return o.attr, nil
}

// readAttr returns the attributes of an open file. For a Content, the size comes from the Content, and
// the times are at least those of its last change: the file in the folder has neither.
func (f *file) readAttr(n *node) (*attr, error) {
	a, err := statAt(int(f.Fd()), "")
	if err != nil {
		return nil, err
	}
	if a.nlink == 0 {
		return nil, statusStale
	}
	if f.special {
		a.size = uint64(f.content.Size())
		a.used = a.size
		if at := n.file.touched.Load(); at != 0 {
			a.mtime, a.ctime = a.mtime.orLater(at), a.ctime.orLater(at)
		}
	}
	return a, nil
}

// orLater returns t or the Unix time in nanoseconds, whichever is later.
func (m nfsTime) orLater(unixNano int64) nfsTime {
	const second = 1e9
	t := nfsTime{uint32(unixNano / second), uint32(unixNano % second)}
	if t.sec > m.sec || t.sec == m.sec && t.nsec > m.nsec {
		return t
	}
	return m
}

// postOpAttrOf returns the post_op_attr of t. It is empty if t has an error or its attributes cannot be
// read.
func (c *fileCache) postOpAttrOf(t target) postOpAttr {
	if t.err != nil {
		return postOpAttr{}
	}
	a, err := c.attrOf(t.node)
	if err != nil {
		return postOpAttr{}
	}
	return postOpAttr{a, t.node.export.id}
}

// formatFile is the file type of a regular file.
const formatFile = unix.S_IFREG
