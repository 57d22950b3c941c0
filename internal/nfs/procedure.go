package nfs

import (
	"context"

	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// The NFS program (RFC 1813 section 3).
const (
	nfsProgram = 100003
	nfsVersion = 3
)

// Calls that are remembered. The two kinds do not share a cache: the thousands of WRITEs a
// second would push the few others out.
const (
	rememberedCalls  = 4096
	rememberedWrites = 8192
)

// nfsProcedures returns the NFS program.
func nfsProcedures(o Options, exports *exportTable, open *files) *oncrpc.Program {
	once, writes := oncrpc.NewCache(rememberedCalls), oncrpc.NewCache(rememberedWrites)
	args := &argDecoder{exports: exports}
	owners := &ownerRules{root: mayChown(), noSquash: o.NoRootSquash}
	attrs := &attrProcedures{files: open, owners: owners, durable: o.Durable}
	names := &nameProcedures{files: open, owners: owners, attrs: attrs, durable: o.Durable, log: o.Log}
	data := &dataProcedures{files: open, args: args, memory: newPayloadMemory(o), durable: o.Durable, verifier: o.Verifier}
	lists := &listProcedures{files: open}
	list := []*oncrpc.Procedure{
		0:  oncrpc.Null,
		1:  define("GETATTR", nil, args.handle, attrs.getattr),
		2:  define("SETATTR", once, args.setattrArgs, attrs.setattr),
		3:  define("LOOKUP", nil, args.nameArgs, names.lookup),
		4:  define("ACCESS", nil, args.accessArgs, attrs.access),
		5:  define("READLINK", nil, args.handle, attrs.readlink),
		6:  {Name: "READ", Decode: data.read},
		7:  {Name: "WRITE", Decode: data.write, Once: writes},
		8:  define("CREATE", once, args.createArgs, names.create),
		9:  define("MKDIR", once, args.mkdirArgs, names.mkdir),
		10: define("SYMLINK", once, args.symlinkArgs, names.symlink),
		11: define("MKNOD", nil, args.nameArgs, names.mknod),
		12: define("REMOVE", once, args.nameArgs, names.remove),
		13: define("RMDIR", once, args.nameArgs, names.rmdir),
		14: define("RENAME", once, args.renameArgs, names.rename),
		15: define("LINK", once, args.linkArgs, names.link),
		16: define("READDIR", nil, args.readdirArgs, lists.readdir),
		17: define("READDIRPLUS", nil, args.readdirplusArgs, lists.readdirplus),
		18: define("FSSTAT", nil, args.handle, attrs.fsstat),
		19: define("FSINFO", nil, args.handle, attrs.fsinfo),
		20: define("PATHCONF", nil, args.handle, attrs.pathconf),
		21: define("COMMIT", nil, args.commitArgs, data.commit),
	}
	return &oncrpc.Program{
		Number: nfsProgram, Name: "nfs", Low: nfsVersion, High: nfsVersion,
		Procedure: func(_, n uint32) *oncrpc.Procedure { return at(list, n) },
	}
}

// result is what a procedure answers: its status, then one of two bodies, which may be nil.
type result struct {
	err      error
	ok, fail func(*xdr.Encoder)
}

// define makes a procedure of how its arguments are decoded and what answers it.
func define[A any](name string, once *oncrpc.Cache, decode func(*xdr.Decoder) A, answer func(context.Context, caller, A) result) *oncrpc.Procedure {
	return &oncrpc.Procedure{Name: name, Once: once, Decode: func(_ context.Context, c *oncrpc.Call) (oncrpc.Answer, error) {
		args := decode(c.Args)
		if large, ok := any(args).(interface{ replySize() int }); ok {
			c.Expect = large.replySize()
		}
		by := caller{uid: c.Cred.UID, gid: c.Cred.GID}
		return func(ctx context.Context, e *xdr.Encoder) error {
			return encodeResult(ctx, e, answer(ctx, by, args))
		}, c.Args.Err()
	}}
}

// caller is who owns what a call creates.
type caller struct{ uid, gid uint32 }

// encodeResult appends a result. When the server ends, an error may be nothing but that:
// the client asks the next server.
func encodeResult(ctx context.Context, e *xdr.Encoder, r result) error {
	if r.err != nil && ctx.Err() != nil {
		return oncrpc.ErrNoReply
	}
	e.Uint32(uint32(statusOf(r.err)))
	body := r.ok
	if r.err != nil {
		body = r.fail
	}
	if body != nil {
		body(e)
	}
	return nil
}

// at returns the procedure of a number; nil if there is none.
func at(list []*oncrpc.Procedure, n uint32) *oncrpc.Procedure {
	if n >= uint32(len(list)) {
		return nil
	}
	return list[n]
}
