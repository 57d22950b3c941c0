package nfs

import "github.com/decamp/decamp/internal/nfs/xdr"

// argDecoder decodes the arguments of procedures, and finds the files that their handles name.
// It has no lock: the exports lock themselves. Decoders of one procedure are beside that.
type argDecoder struct{ exports *exportTable }

// target is a file that a call's handle names, or why it names none.
type target struct {
	node *node
	err  error
}

// decodeTarget takes nfs_fh3. What is none of ours is the call's error, not garbage.
func (ad *argDecoder) decodeTarget(d *xdr.Decoder) target {
	p := d.Opaque(maxHandle)
	if d.Err() != nil {
		return target{err: statusBadHandle}
	}
	n, err := ad.exports.findNode(p)
	return target{n, err}
}

// nameArgs is diropargs3: a name in a folder.
type nameArgs struct {
	dir  target
	name string
}

func (ad *argDecoder) decodeNameArgs(d *xdr.Decoder) nameArgs {
	return nameArgs{dir: ad.decodeTarget(d), name: d.String(maxNameArg)}
}
