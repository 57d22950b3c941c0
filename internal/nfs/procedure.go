package nfs

import (
	"context"
	"errors"

	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// The NFS program (RFC 1813 section 3).
const (
	nfsProgram = 100003
	nfsVersion = 3
)

// procedures lists the program's procedures by number.
func (s *Server) procedures() []*oncrpc.Procedure {
	return []*oncrpc.Procedure{
		0:  oncrpc.Null,
		1:  define("GETATTR", nil, s.handle, s.getattr),
		2:  define("SETATTR", s.once, s.setattrArgs, s.setattr),
		3:  define("LOOKUP", nil, s.nameArgs, s.lookup),
		4:  define("ACCESS", nil, s.accessArgs, s.access),
		5:  define("READLINK", nil, s.handle, s.readlink),
		6:  {Name: "READ", Decode: s.read},
		7:  {Name: "WRITE", Decode: s.write, Once: s.writes},
		8:  define("CREATE", s.once, s.createArgs, s.create),
		9:  define("MKDIR", s.once, s.mkdirArgs, s.mkdir),
		10: define("SYMLINK", s.once, s.symlinkArgs, s.symlink),
		11: define("MKNOD", nil, s.nameArgs, s.mknod),
		12: define("REMOVE", s.once, s.nameArgs, s.remove),
		13: define("RMDIR", s.once, s.nameArgs, s.rmdir),
		14: define("RENAME", s.once, s.renameArgs, s.rename),
		15: define("LINK", s.once, s.linkArgs, s.link),
		16: define("READDIR", nil, s.readdirArgs, s.readdir),
		17: define("READDIRPLUS", nil, s.readdirplusArgs, s.readdirplus),
		18: define("FSSTAT", nil, s.handle, s.fsstat),
		19: define("FSINFO", nil, s.handle, s.fsinfo),
		20: define("PATHCONF", nil, s.handle, s.pathconf),
		21: define("COMMIT", nil, s.commitArgs, s.commit),
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

// target is a file that a call's handle names, or why it names none.
type target struct {
	node *node
	err  error
}

// handle takes nfs_fh3. What is none of ours is the call's error, not garbage.
func (s *Server) handle(d *xdr.Decoder) target {
	p := d.Opaque(maxHandle)
	if d.Err() != nil {
		return target{err: statusBadHandle}
	}
	n, err := s.find(p)
	return target{n, err}
}

// find returns what a handle means.
func (s *Server) find(handle []byte) (*node, error) {
	export, id, err := decodeHandle(handle)
	if err != nil {
		return nil, err
	}
	x := s.byID[export]
	if x == nil {
		return nil, statusStale
	}
	n := x.node(id)
	if n == nil {
		n = x.walk(id)
	}
	if n == nil || x.fileID != x.id && (n.format == formatFile) != (export == x.fileID) {
		return nil, statusStale
	}
	return n, nil
}

// nameArgs is diropargs3: a name in a folder.
type nameArgs struct {
	dir  target
	name string
}

func (s *Server) nameArgs(d *xdr.Decoder) nameArgs {
	return nameArgs{dir: s.handle(d), name: d.String(maxNameArg)}
}

// attributes returns a file's attributes as clients see them.
func (s *Server) attributes(n *node) (*attr, error) {
	if n.format == formatFile && n.export.Open != nil && !n.file.plain.Load() {
		f, err := s.files.acquire(n)
		if err == nil {
			defer s.files.release(n, f)
			return f.attributes(n)
		}
		if statusOf(err) == statusStale || errors.As(err, new(*contentError)) {
			return nil, err
		}
	}
	o, err := n.export.hold(n)
	if err != nil {
		return nil, err
	}
	defer o.close()
	return o.attr, nil
}

// attributes returns those of an open file. A Content knows its size; that it was changed
// the file in the folder does not know.
func (f *file) attributes(n *node) (*attr, error) {
	a, err := stat(int(f.Fd()), "")
	if err != nil {
		return nil, err
	}
	if a.nlink == 0 {
		return nil, statusStale
	}
	if f.special {
		a.size = uint64(f.content.Size())
		a.used = a.size
		if at := n.file.touched.Load(); at != 0 {
			a.mtime, a.ctime = a.mtime.later(at), a.ctime.later(at)
		}
	}
	return a, nil
}

// later returns the later of a moment and a Unix time in nanoseconds.
func (m moment) later(unixNano int64) moment {
	const second = 1e9
	t := moment{uint32(unixNano / second), uint32(unixNano % second)}
	if t.sec > m.sec || t.sec == m.sec && t.nsec > m.nsec {
		return t
	}
	return m
}

// view returns a node's post_op_attr. Where the attributes cannot be had, none are sent.
func (s *Server) view(t target) view {
	if t.err != nil {
		return view{}
	}
	a, err := s.attributes(t.node)
	if err != nil {
		return view{}
	}
	return view{a, t.node.export.id}
}
