package nfs

import "github.com/decamp/decamp/internal/nfs/xdr"

// argDecoder decodes the arguments of procedures, and finds the files that their handles name. It has
// no lock: each export locks itself, and each decoder belongs to one call.
type argDecoder struct{ exports *exportTable }

// target is the file that a handle names, or the reason why it names none.
type target struct {
	node *node // file of the handle; nil if err is set
	err  error // status for the client; nil if node is set
}

// decodeTarget decodes an nfs_fh3. A handle of another server is an error of the call, not of its
// encoding: it ends in target.err and not in d.Err.
func (ad *argDecoder) decodeTarget(d *xdr.Decoder) target {
	p := d.Opaque(maxHandle)
	if d.Err() != nil {
		return target{err: statusBadHandle}
	}
	n, err := ad.exports.findNode(p)
	return target{n, err}
}

// nameArgs is diropargs3: a name in a folder. checkName has not seen the name yet.
type nameArgs struct {
	dir  target // folder that the name is looked up in
	name string // last component of a path, as bytes; at most maxNameArg of them
}

// decodeNameArgs decodes diropargs3. A name longer than maxNameArg makes the call malformed.
func (ad *argDecoder) decodeNameArgs(d *xdr.Decoder) nameArgs {
	return nameArgs{dir: ad.decodeTarget(d), name: d.String(maxNameArg)}
}
