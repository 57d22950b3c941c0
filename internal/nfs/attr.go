package nfs

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// ident tells a file from every other of its file system, also from a later one with the
// same inode number.
type inodeID struct {
	ino   uint64
	birth int64 // nanoseconds; 0 where the file system does not keep it
}

// moment is nfstime3: seconds and nanoseconds.
type nfsTime struct{ sec, nsec uint32 }

func nfsTimeOf(t unix.StatxTimestamp) nfsTime { return nfsTime{uint32(t.Sec), t.Nsec} }

// attr is what the system says of a file.
type attr struct {
	id                  inodeID
	dev                 uint64
	format              uint32 // S_IFREG, S_IFDIR or S_IFLNK
	mode                uint32
	nlink, uid, gid     uint32
	size, used          uint64
	atime, mtime, ctime nfsTime
}

const sectorSize = 512 // what statx counts blocks in

// statAt returns the attributes of name in the folder fd, which it does not follow, or of
// fd itself where name is empty.
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
	typeReg = 1
	typeDir = 2
	typeLnk = 5
)

var typeOfFormat = map[uint32]uint32{unix.S_IFREG: typeReg, unix.S_IFDIR: typeDir, unix.S_IFLNK: typeLnk}

// encodeAttr appends fattr3. fsid is the export's.
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

func encodeTime(e *xdr.Encoder, t nfsTime) {
	e.Uint32(t.sec)
	e.Uint32(t.nsec)
}

// view is the attributes of a node as a reply shows them: post_op_attr. A view without
// attributes is legal everywhere, and what is sent where they could not be had.
type postOpAttr struct {
	*attr
	fsid uint64
}

func (v postOpAttr) encode(e *xdr.Encoder) {
	e.Bool(v.attr != nil)
	if v.attr != nil {
		encodeAttr(e, v.attr, v.fsid)
	}
}

// change is the attributes before and after an operation: wcc_data. before is sent only
// where nobody else could change them in between.
type wccData struct {
	before *attr
	after  postOpAttr
}

func (c wccData) encode(e *xdr.Encoder) {
	e.Bool(c.before != nil)
	if c.before != nil {
		e.Uint64(c.before.size)
		encodeTime(e, c.before.mtime)
		encodeTime(e, c.before.ctime)
	}
	c.after.encode(e)
}

// attrOf returns a file's attributes as clients see them.
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

// readAttr returns those of an open file. A Content knows its size; that it was changed
// the file in the folder does not know.
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

// orLater returns the later of a moment and a Unix time in nanoseconds.
func (m nfsTime) orLater(unixNano int64) nfsTime {
	const second = 1e9
	t := nfsTime{uint32(unixNano / second), uint32(unixNano % second)}
	if t.sec > m.sec || t.sec == m.sec && t.nsec > m.nsec {
		return t
	}
	return m
}

// postOpAttrOf returns a node's post_op_attr. Where the attributes cannot be had, none are sent.
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

// formatFile is the format of a regular file.
const formatFile = unix.S_IFREG
