package nfs

import (
	"context"
	"path"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// linkArgs is LINK3args.
type linkArgs struct {
	file target   // existing file that gets another name
	to   nameArgs // new name
}

// decodeLinkArgs decodes LINK3args.
func (ad *argDecoder) decodeLinkArgs(d *xdr.Decoder) linkArgs {
	return linkArgs{ad.decodeTarget(d), ad.decodeNameArgs(d)}
}

// serveLink answers LINK (RFC 1813 section 3.3.15).
func (p *nameProcedures) serveLink(_ context.Context, _ caller, a linkArgs) result {
	wcc, err := p.changeFolder(a.to.dir, a.to.name, func(folder *object) error { return p.linkIn(a, folder) })
	file := p.files.postOpAttrOf(a.file)
	both := func(e *xdr.Encoder) {
		file.encode(e)
		wcc.encode(e)
	}
	return result{err: err, ok: both, fail: both}
}

// linkIn adds a name for a file in an open folder. It refuses folders, files of another export, and
// files that Export.Writable refuses. The folder's changing must be held.
func (p *nameProcedures) linkIn(a linkArgs, folder *object) error {
	if a.file.err != nil {
		return a.file.err
	}
	if err := checkNew(a.to.name); err != nil {
		return err
	}
	x := a.file.node.export
	if x != a.to.dir.node.export {
		return statusXDev
	}
	if a.file.node.format == unix.S_IFDIR {
		return statusInval
	}
	if err := x.mayChange(path.Clean(x.pathOf(a.file.node))); err != nil {
		return err
	}
	o, err := x.openNode(a.file.node)
	if err != nil {
		return err
	}
	defer o.close()
	return unix.Linkat(unix.AT_FDCWD, o.path(), folder.fd, a.to.name, unix.AT_SYMLINK_FOLLOW)
}
