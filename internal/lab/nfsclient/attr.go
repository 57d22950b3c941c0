package nfsclient

import (
	"time"

	"github.com/decamp/decamp/internal/lab/xdr"
)

// Handle is a file handle: an opaque identifier that the server chooses.
type Handle string

// FileType is the type of a file (ftype3, RFC 1813 section 2.6).
type FileType uint32

// The types of files on a datastore.
const (
	Regular   FileType = 1 // regular file
	Directory FileType = 2 // directory
	lastType  FileType = 7 // largest valid ftype3
)

// Limits of RFC 1813 section 2.2 on what a server may send.
const (
	maxHandleV3 = 64  // longest NFSv3 handle, in bytes
	maxName     = 255 // longest name in bytes; the RFC has no limit, servers use NAME_MAX
	cookieVerf  = 8   // size of a cookie verifier in bytes
	writeVerf   = 8   // size of a write verifier in bytes
)

// Attr contains the attributes of a file (fattr3, RFC 1813 section 2.6), without rdev, atime and ctime.
type Attr struct {
	Type   FileType  // type of the file
	Mode   uint32    // permission bits
	Links  uint32    // number of hard links
	UID    uint32    // owner
	GID    uint32    // group
	Size   uint64    // length in bytes
	Used   uint64    // allocated space in bytes
	FSID   uint64    // identifier of the file system
	FileID uint64    // number of the file, unique in its file system
	MTime  time.Time // time of the last change of the data
}

// readHandle decodes a file handle. An empty handle is an error.
func readHandle(d *xdr.Decoder) Handle {
	h := d.Opaque(maxHandleV3)
	if len(h) == 0 {
		d.Fail("empty file handle")
	}
	return Handle(h)
}

// readAttr decodes a fattr3.
func readAttr(d *xdr.Decoder) (a Attr) {
	a.Type = FileType(d.Uint32())
	if a.Type < Regular || a.Type > lastType {
		d.Fail("file type %d", a.Type)
	}
	a.Mode, a.Links, a.UID, a.GID = d.Uint32(), d.Uint32(), d.Uint32(), d.Uint32()
	a.Size, a.Used = d.Uint64(), d.Uint64()
	d.Uint64() // rdev
	a.FSID, a.FileID = d.Uint64(), d.Uint64()
	readTime(d) // atime
	a.MTime = readTime(d)
	readTime(d) // ctime
	return a
}

// readTime decodes an nfstime3.
func readTime(d *xdr.Decoder) time.Time {
	sec, nsec := d.Uint32(), d.Uint32()
	if nsec >= uint32(time.Second) {
		d.Fail("%d nanoseconds", nsec)
	}
	return time.Unix(int64(sec), int64(nsec))
}

// postOp is a post_op_attr: attributes that the server may omit.
type postOp struct {
	Attr
	present bool // whether the server sent the attributes
}

// readPostOp decodes a post_op_attr.
func readPostOp(d *xdr.Decoder) (p postOp) {
	if p.present = d.Bool(); p.present {
		p.Attr = readAttr(d)
	}
	return p
}

// readWcc decodes wcc_data and returns the attributes after the operation.
func readWcc(d *xdr.Decoder) postOp {
	if d.Bool() { // pre_op_attr: size, mtime, ctime
		d.Uint64()
		readTime(d)
		readTime(d)
	}
	return readPostOp(d)
}

// sattr is a sattr3 with the attributes that the client sets.
type sattr struct {
	mode *uint32 // permission bits; nil leaves them unchanged
	size *uint64 // length in bytes; nil leaves it unchanged
}

// appendTo encodes the attributes.
func (s sattr) appendTo(e *xdr.Encoder) {
	e.Bool(s.mode != nil)
	if s.mode != nil {
		e.Uint32(*s.mode)
	}
	e.Bool(false) // uid
	e.Bool(false) // gid
	e.Bool(s.size != nil)
	if s.size != nil {
		e.Uint64(*s.size)
	}
	e.Uint32(0) // atime: do not change
	e.Uint32(0) // mtime: do not change
}

// readAttrInto returns a function that decodes a fattr3 into a.
func readAttrInto(a *Attr) func(*xdr.Decoder) { return func(d *xdr.Decoder) { *a = readAttr(d) } }
