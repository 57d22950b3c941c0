package nfsclient

import (
	"time"

	"github.com/decamp/decamp/internal/lab/xdr"
)

// Handle is a file handle: the server's name of a file.
type Handle string

// FileType is an ftype3.
type FileType uint32

// The types a datastore holds.
const (
	Regular   FileType = 1
	Directory FileType = 2
	lastType  FileType = 7
)

// Limits of RFC 1813 section 2.2 on what a server may send.
const (
	maxHandleV3 = 64
	maxName     = 255 // not in the RFC; NAME_MAX of every server there is
	cookieVerf  = 8
	writeVerf   = 8
)

// Attr is a fattr3.
type Attr struct {
	Type   FileType
	Mode   uint32
	Links  uint32
	UID    uint32
	GID    uint32
	Size   uint64
	Used   uint64
	FSID   uint64
	FileID uint64
	MTime  time.Time
}

func readHandle(d *xdr.Decoder) Handle {
	h := d.Opaque(maxHandleV3)
	if len(h) == 0 {
		d.Fail("empty file handle")
	}
	return Handle(h)
}

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

func readTime(d *xdr.Decoder) time.Time {
	sec, nsec := d.Uint32(), d.Uint32()
	if nsec >= uint32(time.Second) {
		d.Fail("%d nanoseconds", nsec)
	}
	return time.Unix(int64(sec), int64(nsec))
}

// postOp is a post_op_attr: attributes the server may leave out.
type postOp struct {
	Attr
	present bool
}

func readPostOp(d *xdr.Decoder) (p postOp) {
	if p.present = d.Bool(); p.present {
		p.Attr = readAttr(d)
	}
	return p
}

// readWcc takes wcc_data and returns its second half.
func readWcc(d *xdr.Decoder) postOp {
	if d.Bool() { // pre_op_attr: size, mtime, ctime
		d.Uint64()
		readTime(d)
		readTime(d)
	}
	return readPostOp(d)
}

// sattr is a sattr3: only what the client ever sets.
type sattr struct {
	mode *uint32
	size *uint64
}

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

func readAttrInto(a *Attr) func(*xdr.Decoder) { return func(d *xdr.Decoder) { *a = readAttr(d) } }
