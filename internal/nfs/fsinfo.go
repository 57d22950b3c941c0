package nfs

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/diskspace"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// Values of FSINFO (RFC 1813 section 3.3.19). ESXi uses them as upper limits of its settings;
// vmkfstools writes 64 KiB in any case.
const (
	maxTransfer = 1 << 20  // largest and preferred READ and WRITE, in bytes
	transferMul = 4096     // suggested multiple of a transfer, in bytes
	listingPref = 32 << 10 // preferred size of a READDIR reply, in bytes

	// maxFileSize is the largest off_t. Sparse files may have sizes of many TiB; the file system has the
	// final limit.
	maxFileSize = 1<<63 - 1

	// properties are FSF3_LINK, FSF3_SYMLINK, FSF3_HOMOGENEOUS and FSF3_CANSETTIME.
	properties = 0x0001 | 0x0002 | 0x0008 | 0x0010
)

// serveFsinfo answers FSINFO (RFC 1813 section 3.3.19).
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
		encodeTime(e, nfsTime{nsec: 1}) // time_delta: the resolution of times
		e.Uint32(properties)
	}}
}

// maxLinks is the linkmax of PATHCONF (RFC 1813 section 3.3.20). ext4 allows 65000 names; the file
// system has the final limit.
const maxLinks = 32000

// servePathconf answers PATHCONF (RFC 1813 section 3.3.20).
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

// space contains the results of FSSTAT.
type space struct {
	// bytes of the file system, unused ones, and those that users other than root may use
	total, free, available uint64
	files, freeFiles       uint64 // inodes of the file system, and unused ones
}

// serveFsstat answers FSSTAT (RFC 1813 section 3.3.18).
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
		e.Uint32(0) // invarsec: the values may change at any moment
	}}
}

// statSpace returns the space of the file system that contains the export. Export.Space replaces the
// byte counts if it is set, not the inodes.
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
