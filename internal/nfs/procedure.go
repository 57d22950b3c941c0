package nfs

import (
	"context"

	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// The NFS program (RFC 1813 section 3).
const (
	nfsProgram = 100003 // number of the RPC program
	nfsVersion = 3      // the only version served
)

// Numbers of cached replies. The two kinds do not share a cache: thousands of WRITEs a second
// would displace the few others.
const (
	rememberedCalls  = 4096 // replies of calls that change names or attributes
	rememberedWrites = 8192 // replies of WRITEs
)

// nfsProcedures returns the NFS program, with its procedures at their numbers (RFC 1813 section 3.3).
func nfsProcedures(o Options, exports *exportTable, open *fileCache) *oncrpc.Program {
	once, writes := oncrpc.NewCache(rememberedCalls), oncrpc.NewCache(rememberedWrites)
	args := &argDecoder{exports: exports}
	owners := &ownerRules{root: mayChown(), noSquash: o.NoRootSquash}
	attrs := &attrProcedures{files: open, owners: owners, durable: o.Durable}
	names := &nameProcedures{files: open, owners: owners, attrs: attrs, durable: o.Durable, log: o.Log}
	data := &dataProcedures{files: open, args: args, memory: newPayloadMemory(o), durable: o.Durable, verifier: o.Verifier}
	lists := &listProcedures{files: open}
	list := []*oncrpc.Procedure{
		0:  oncrpc.Null,
		1:  defineProcedure("GETATTR", nil, args.decodeTarget, attrs.serveGetattr),
		2:  defineProcedure("SETATTR", once, args.decodeSetattrArgs, attrs.serveSetattr),
		3:  defineProcedure("LOOKUP", nil, args.decodeNameArgs, names.serveLookup),
		4:  defineProcedure("ACCESS", nil, args.decodeAccessArgs, attrs.serveAccess),
		5:  defineProcedure("READLINK", nil, args.decodeTarget, attrs.serveReadlink),
		6:  {Name: "READ", Decode: data.decodeRead},
		7:  {Name: "WRITE", Decode: data.decodeWrite, Once: writes},
		8:  defineProcedure("CREATE", once, args.decodeCreateArgs, names.serveCreate),
		9:  defineProcedure("MKDIR", once, args.decodeMkdirArgs, names.serveMkdir),
		10: defineProcedure("SYMLINK", once, args.decodeSymlinkArgs, names.serveSymlink),
		11: defineProcedure("MKNOD", nil, args.decodeNameArgs, names.serveMknod),
		12: defineProcedure("REMOVE", once, args.decodeNameArgs, names.serveRemove),
		13: defineProcedure("RMDIR", once, args.decodeNameArgs, names.serveRmdir),
		14: defineProcedure("RENAME", once, args.decodeRenameArgs, names.serveRename),
		15: defineProcedure("LINK", once, args.decodeLinkArgs, names.serveLink),
		16: defineProcedure("READDIR", nil, args.decodeReaddirArgs, lists.serveReaddir),
		17: defineProcedure("READDIRPLUS", nil, args.decodeReaddirplusArgs, lists.serveReaddirplus),
		18: defineProcedure("FSSTAT", nil, args.decodeTarget, attrs.serveFsstat),
		19: defineProcedure("FSINFO", nil, args.decodeTarget, attrs.serveFsinfo),
		20: defineProcedure("PATHCONF", nil, args.decodeTarget, attrs.servePathconf),
		21: defineProcedure("COMMIT", nil, args.decodeCommitArgs, data.serveCommit),
	}
	return &oncrpc.Program{
		Number: nfsProgram, Name: "nfs", Low: nfsVersion, High: nfsVersion,
		Procedure: func(_, n uint32) *oncrpc.Procedure { return procedureAt(list, n) },
	}
}

// result is the outcome of a procedure: a status, and the body for it.
type result struct {
	err      error              // error that statusOf maps to the status; nil means NFS3_OK
	ok, fail func(*xdr.Encoder) // encoders of the body for success and failure; nil means an empty body
}

// defineProcedure returns the procedure with that name. decode reads its arguments, and answer does the
// call. once is nil for calls that may be repeated. If the arguments have a replySize method, the reply
// waits for memory of that size.
func defineProcedure[A any](name string, once *oncrpc.Cache, decode func(*xdr.Decoder) A, answer func(context.Context, caller, A) result) *oncrpc.Procedure {
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

// caller is the user and group of a call, from AUTH_SYS. The client's claim is not verified.
type caller struct{ uid, gid uint32 }

// encodeResult appends a result. If ctx has ended and the call failed, it returns ErrNoReply: the error
// may only be a consequence of the end, and the client repeats the call.
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

// procedureAt returns the procedure with number n; nil if it does not exist.
func procedureAt(list []*oncrpc.Procedure, n uint32) *oncrpc.Procedure {
	if n >= uint32(len(list)) {
		return nil
	}
	return list[n]
}
