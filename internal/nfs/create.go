package nfs

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// createmode3 (RFC 1813 section 3.3.8).
const (
	createUnchecked = 0 // an existing file is used
	createGuarded   = 1 // an existing file is an error
	createExclusive = 2 // an existing file is an error, unless the same call created it
)

// Modes of new files and folders.
const (
	fileMode   = 0o644 // mode of a new file if the call sets none
	folderMode = 0o755 // mode of a new folder if the call sets none

	// mode of a new file until its owner and mode are set
	privateMode = 0o600
)

// createArgs is CREATE3args.
type createArgs struct {
	nameArgs
	how  uint32  // createUnchecked, createGuarded or createExclusive
	attr newAttr // attributes of the new file; for an exclusive CREATE, the times that store verf
	verf uint64  // verifier of an exclusive CREATE; 0 for the others
}

// decodeCreateArgs decodes CREATE3args. An unknown createmode3 makes the call malformed.
func (ad *argDecoder) decodeCreateArgs(d *xdr.Decoder) createArgs {
	a := createArgs{nameArgs: ad.decodeNameArgs(d), how: d.Uint32()}
	switch a.how {
	case createUnchecked, createGuarded:
		a.attr = decodeNewAttr(d)
	case createExclusive:
		a.verf = d.Uint64()
		a.attr.atime, a.attr.mtime = verifierTimes(a.verf)
	default:
		d.Fail("createmode3 %d", a.how)
	}
	return a
}

// verifierTimes returns the times that store the verifier of an exclusive CREATE in the new file, as
// the Linux server does. The server recognizes a repeated call by them, even after a restart. The
// client sets the real times next (RFC 1813 section 3.3.8). One bit of each half is lost, because some
// file systems store times up to 2038 only.
func verifierTimes(verf uint64) (atime, mtime unix.Timespec) {
	const half, bits = 32, 0x7fffffff
	return unix.Timespec{Sec: int64(verf >> half & bits)}, unix.Timespec{Sec: int64(verf & bits)}
}

// serveCreate answers CREATE (RFC 1813 section 3.3.8).
func (p *nameProcedures) serveCreate(ctx context.Context, by caller, a createArgs) result {
	var n *node
	wcc, err := p.changeFolder(a.dir, a.name, func(folder *object) (err error) {
		n, err = p.createIn(ctx, by, a, folder)
		return err
	})
	return p.creationResult(n, wcc, err)
}

// createIn creates the file in an open folder, or returns the existing one if the call allows it. If a
// step after the creation fails, it removes the file again. The folder's changing must be held.
func (p *nameProcedures) createIn(ctx context.Context, by caller, a createArgs, folder *object) (*node, error) {
	if err := checkNew(a.name); err != nil {
		return nil, err
	}
	o, err := a.dir.node.export.makeFile(folder, a.name)
	if isErrno(err, unix.EEXIST) {
		return p.openExisting(ctx, a, folder)
	}
	if err != nil {
		return nil, err
	}
	defer o.close()
	n, err := p.initObject(o, by, a.nameArgs, a.attr, fileMode)
	if err == nil && a.attr.size != nil && *a.attr.size > 0 {
		err = p.attrs.resizeFile(ctx, target{node: n}, *a.attr.size)
	}
	if err != nil {
		_ = unix.Unlinkat(folder.fd, a.name, 0) // the first error is returned
		return nil, err
	}
	return n, nil
}

// openExisting returns the node of a file that exists already. It fails with statusExist for a guarded
// CREATE, for a folder or link, and for an exclusive CREATE with another verifier. An unchecked CREATE
// sets the size if the call has one; RFC 1813 lets the server ignore the other attributes.
func (p *nameProcedures) openExisting(ctx context.Context, a createArgs, folder *object) (*node, error) {
	n, at, err := a.dir.node.export.lookUpName(a.dir.node, folder, a.name)
	if err != nil {
		return nil, err
	}
	switch {
	case at.format != formatFile, a.how == createGuarded:
		return nil, statusExist
	case a.how == createExclusive:
		if !isRepeated(a, at) {
			return nil, statusExist
		}
	case a.attr.size != nil: // an existing file keeps its other attributes
		return n, p.attrs.resizeFile(ctx, target{node: n}, *a.attr.size)
	}
	return n, nil
}

// isRepeated reports whether the same exclusive CREATE made the file: its times contain the verifier
// and it is still empty.
func isRepeated(a createArgs, at *attr) bool {
	atime, mtime := verifierTimes(a.verf)
	return at.size == 0 && at.atime == (nfsTime{sec: uint32(atime.Sec)}) && at.mtime == (nfsTime{sec: uint32(mtime.Sec)})
}

// initObject sets the owner and the attributes of a new object, and adds its node. mode is used if a
// has none. Sizes are not set here.
func (p *nameProcedures) initObject(o *object, by caller, where nameArgs, a newAttr, mode uint32) (*node, error) {
	if err := p.owners.setOwner(o, by, a); err != nil {
		return nil, err
	}
	a.uid, a.gid = nil, nil
	if a.mode == nil {
		a.mode = &mode
	}
	if err := a.applyTo(o); err != nil {
		return nil, err
	}
	return where.dir.node.export.addNode(where.dir.node, where.name, o.attr), nil
}

// mkdirArgs is MKDIR3args.
type mkdirArgs struct {
	nameArgs
	attr newAttr // attributes of the new folder
}

// decodeMkdirArgs decodes MKDIR3args.
func (ad *argDecoder) decodeMkdirArgs(d *xdr.Decoder) mkdirArgs {
	return mkdirArgs{ad.decodeNameArgs(d), decodeNewAttr(d)}
}

// serveMkdir answers MKDIR (RFC 1813 section 3.3.9).
func (p *nameProcedures) serveMkdir(_ context.Context, by caller, a mkdirArgs) result {
	var n *node
	wcc, err := p.changeFolder(a.dir, a.name, func(folder *object) (err error) {
		if err = checkNew(a.name); err != nil {
			return err
		}
		o, err := a.dir.node.export.makeFolder(folder, a.name)
		if err != nil {
			return err
		}
		defer o.close()
		n, err = p.initObject(o, by, a.nameArgs, a.attr, folderMode)
		return err
	})
	return p.creationResult(n, wcc, err)
}

// symlinkArgs is SYMLINK3args.
type symlinkArgs struct {
	nameArgs
	attr newAttr // attributes of the link itself; its mode is ignored
	to   string  // text of the link
}

// decodeSymlinkArgs decodes SYMLINK3args.
func (ad *argDecoder) decodeSymlinkArgs(d *xdr.Decoder) symlinkArgs {
	return symlinkArgs{ad.decodeNameArgs(d), decodeNewAttr(d), d.String(maxPath)}
}

// serveSymlink answers SYMLINK (RFC 1813 section 3.3.10). The server stores the text and never follows
// the link; checkLink restricts it.
func (p *nameProcedures) serveSymlink(_ context.Context, by caller, a symlinkArgs) result {
	var n *node
	wcc, err := p.changeFolder(a.dir, a.name, func(folder *object) (err error) {
		if err = checkNew(a.name); err != nil {
			return err
		}
		if err = checkLink(a.to); err != nil {
			return err
		}
		o, err := a.dir.node.export.makeLink(folder, a.name, a.to)
		if err != nil {
			return err
		}
		defer o.close()
		n, err = p.initObject(o, by, a.nameArgs, a.attr, permBits)
		return err
	})
	return p.creationResult(n, wcc, err)
}

// checkLink checks the text of a new link. The server follows no links, but a local user may: root, who
// reads files that a host has written. Therefore a link must be relative and must not contain "..".
func checkLink(to string) error {
	switch {
	case to == "":
		return statusInval
	case len(to) >= maxPath:
		return statusNameTooLong
	}
	for _, c := range []byte(to) {
		if c == 0 {
			return statusInval
		}
	}
	if to[0] == '/' || slices.Contains(strings.Split(to, "/"), "..") {
		return statusPerm
	}
	return nil
}

// serveMknod answers MKNOD with NFS3ERR_NOTSUPP: a datastore has no devices, sockets or pipes.
func (p *nameProcedures) serveMknod(_ context.Context, _ caller, a nameArgs) result {
	err := a.dir.err
	if err == nil {
		err = statusNotSupp
	}
	return result{err: err, fail: wccData{after: p.files.postOpAttrOf(a.dir)}.encode}
}
