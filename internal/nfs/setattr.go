package nfs

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// time_how (RFC 1813 section 2.6).
const (
	timeKeep   = 0 // the time stays unchanged
	timeServer = 1 // the server's current time
	timeClient = 2 // the time in the call
)

// permBits are the bits of a mode that a client can set. Setuid, setgid and sticky are not among them: a
// client must not create a program that runs with the rights of a local user.
const permBits = 0o777

// newAttr is sattr3: the attributes to set. Nil fields, and times with UTIME_OMIT, stay unchanged.
type newAttr struct {
	mode, uid, gid *uint32       // new mode and owner; nil leaves them unchanged
	size           *uint64       // new length in bytes; nil leaves it unchanged
	atime, mtime   unix.Timespec // UTIME_OMIT or UTIME_NOW as nanoseconds, or a time
}

// decodeNewAttr decodes sattr3 (RFC 1813 section 2.6).
func decodeNewAttr(d *xdr.Decoder) newAttr {
	var a newAttr
	a.mode, a.uid, a.gid = decodeOptional(d), decodeOptional(d), decodeOptional(d)
	if d.Bool() {
		size := d.Uint64()
		a.size = &size
	}
	a.atime, a.mtime = decodeSetTime(d), decodeSetTime(d)
	return a
}

// decodeOptional decodes an optional integer; nil if it is absent.
func decodeOptional(d *xdr.Decoder) *uint32 {
	if !d.Bool() {
		return nil
	}
	v := d.Uint32()
	return &v
}

// decodeSetTime decodes set_atime or set_mtime as an argument of utimensat(2).
func decodeSetTime(d *xdr.Decoder) unix.Timespec {
	switch how := d.Uint32(); how {
	case timeKeep:
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	case timeServer:
		return unix.Timespec{Nsec: unix.UTIME_NOW}
	case timeClient:
		sec, nsec := d.Uint32(), d.Uint32()
		const second = 1e9
		if nsec >= second { // includes the special values of utimensat
			d.Fail("%d nanoseconds", nsec)
		}
		return unix.Timespec{Sec: int64(sec), Nsec: int64(nsec)}
	default:
		d.Fail("time_how %d", how)
		return unix.Timespec{}
	}
}

// setsTimes reports whether a changes a time.
func (a newAttr) setsTimes() bool {
	return a.atime.Nsec != unix.UTIME_OMIT || a.mtime.Nsec != unix.UTIME_OMIT
}

// setattrArgs is SETATTR3args (RFC 1813 section 3.3.2).
type setattrArgs struct {
	target
	attr  newAttr  // attributes to set
	guard *nfsTime // ctime that the file must have; nil for any
}

// decodeSetattrArgs decodes SETATTR3args.
func (ad *argDecoder) decodeSetattrArgs(d *xdr.Decoder) setattrArgs {
	a := setattrArgs{target: ad.decodeTarget(d), attr: decodeNewAttr(d)}
	if d.Bool() {
		a.guard = &nfsTime{d.Uint32(), d.Uint32()}
	}
	return a
}

// serveSetattr answers SETATTR.
func (p *attrProcedures) serveSetattr(ctx context.Context, by caller, a setattrArgs) result {
	wcc, err := p.setAttributes(ctx, by, a)
	return result{err: err, ok: wcc.encode, fail: wcc.encode}
}

// setAttributes locks the file and sets its attributes: first the size, then the rest. If a step fails,
// earlier ones stay done. It fails with statusNotSync if the guard does not match.
func (p *attrProcedures) setAttributes(ctx context.Context, by caller, a setattrArgs) (wcc wccData, err error) {
	if a.err != nil {
		return wcc, a.err
	}
	n := a.node
	n.changing.Lock()
	defer n.changing.Unlock()
	if wcc.before, err = p.files.attrOf(n); err != nil {
		return wcc, err
	}
	defer func() { wcc.after = p.files.postOpAttrOf(a.target) }()
	if err := n.export.mayChange(n.export.pathOf(n)); err != nil {
		return wcc, err
	}
	if a.guard != nil && *a.guard != wcc.before.ctime {
		return wcc, statusNotSync
	}
	if a.attr.size != nil {
		if err := p.resizeFile(ctx, a.target, *a.attr.size); err != nil {
			return wcc, err
		}
	}
	o, err := n.export.openNode(n)
	if err != nil {
		return wcc, err
	}
	defer o.close()
	if err := p.owners.checkOwner(by, &a.attr, o.attr); err != nil {
		return wcc, err
	}
	if a.attr.setsTimes() {
		n.file.touched.Store(0)
	}
	return wcc, a.attr.applyTo(o)
}

// resizeFile sets the size of a regular file in its Content.
func (p *attrProcedures) resizeFile(ctx context.Context, t target, size uint64) error {
	f, err := p.files.openRegular(t)
	if err != nil {
		return err
	}
	defer p.files.release(t.node, f)
	if size > maxFileSize {
		return statusFBig
	}
	if err := f.content.Truncate(ctx, int64(size)); err != nil {
		return err
	}
	t.node.file.touch()
	if p.durable {
		return f.content.Commit(ctx)
	}
	return nil
}

// applyTo sets all attributes but the size. The mode follows the owner, because chown clears bits of
// it. The times are last, because the other calls change ctime.
func (a newAttr) applyTo(o *object) error {
	if a.uid != nil || a.gid != nil {
		if err := o.chown(orKeep(a.uid), orKeep(a.gid)); err != nil {
			return err
		}
	}
	if a.mode != nil && o.attr.format != unix.S_IFLNK { // Linux ignores the mode of a link
		mode := *a.mode & permBits
		if o.attr.format == unix.S_IFDIR {
			mode |= o.attr.mode &^ permBits // bits set by an administrator stay: files in a setgid folder inherit its group
		}
		if err := o.chmod(mode); err != nil {
			return err
		}
	}
	if a.setsTimes() {
		return o.setTimes(a.atime, a.mtime)
	}
	return nil
}

// orKeep returns the ID, or keepID for nil.
func orKeep(id *uint32) int {
	if id == nil {
		return keepID
	}
	return int(*id)
}
