package nfs

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/diskspace"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// What FSINFO advises (RFC 1813 section 3.3.19). ESXi takes the smaller of its own limit
// and these; vmkfstools writes 64 KiB whatever they are.
const (
	maxTransfer = 1 << 20 // of READ and WRITE, in bytes; also what is preferred
	transferMul = 4096
	listingPref = 32 << 10

	// maxFileSize is what fits in the system's off_t. Sizes of many TiB are set on sparse
	// files; the file system says where it ends.
	maxFileSize = 1<<63 - 1

	// properties are FSF3_LINK, SYMLINK, HOMOGENEOUS and CANSETTIME.
	properties = 0x0001 | 0x0002 | 0x0008 | 0x0010
)

// serveFsinfo answers FSINFO.
func (p *attrProcedures) serveFsinfo(_ context.Context, _ caller, t target) result {
	v := p.files.postOpAttrOf(t)
	return result{err: t.err, fail: v.encode, ok: func(e *xdr.Encoder) {
		v.encode(e)
		for range 2 { // rtmax, rtpref, rtmult; wtmax, wtpref, wtmult
			e.Uint32(maxTransfer)
			e.Uint32(maxTransfer)
			e.Uint32(transferMul)
		}
		e.Uint32(listingPref)
		e.Uint64(maxFileSize)
		encodeTime(e, nfsTime{nsec: 1}) // times are kept this fine
		e.Uint32(properties)
	}}
}

// What PATHCONF says (RFC 1813 section 3.3.20).
const maxLinks = 32000 // of ext4 less than of others; the file system says where it ends

// servePathconf answers PATHCONF.
func (p *attrProcedures) servePathconf(_ context.Context, _ caller, t target) result {
	v := p.files.postOpAttrOf(t)
	return result{err: t.err, fail: v.encode, ok: func(e *xdr.Encoder) {
		v.encode(e)
		e.Uint32(maxLinks)
		e.Uint32(maxName)
		e.Bool(true)  // no_trunc: a longer name is an error
		e.Bool(true)  // chown_restricted
		e.Bool(false) // case_insensitive
		e.Bool(true)  // case_preserving
	}}
}

// space is what FSSTAT says, in bytes and files.
type space struct {
	total, free, available uint64
	files, freeFiles       uint64
}

// serveFsstat answers FSSTAT.
func (p *attrProcedures) serveFsstat(_ context.Context, _ caller, t target) result {
	var sp space
	err := t.err
	if err == nil {
		sp, err = t.node.export.statSpace()
	}
	v := p.files.postOpAttrOf(t)
	return result{err: err, fail: v.encode, ok: func(e *xdr.Encoder) {
		v.encode(e)
		for _, n := range [...]uint64{sp.total, sp.free, sp.available, sp.files, sp.freeFiles, sp.freeFiles} {
			e.Uint64(n)
		}
		e.Uint32(0) // invarsec: it may change at any moment
	}}
}

func (x *export) statSpace() (space, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(x.dir.fd, &fs); err != nil {
		return space{}, err
	}
	has := diskspace.Of(&fs)
	sp := space{
		total: uint64(has.Size), free: uint64(has.Free), available: uint64(has.Available),
		files: fs.Files, freeFiles: fs.Ffree,
	}
	if x.Space == nil {
		return sp, nil
	}
	total, free, err := x.Space()
	sp.total, sp.free, sp.available = uint64(total), uint64(free), uint64(free)
	return sp, err
}
