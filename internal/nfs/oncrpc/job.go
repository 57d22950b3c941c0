package oncrpc

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// largeReply is from where on a reply's memory is accounted for.
const largeReply = 8 << 10

// job is a call that was read from its record.
type job struct {
	srv    *Server
	conn   *conn
	call   Call
	proc   *Procedure
	answer Answer
	key    cacheKey // where proc.Once is set
	entry  *cached  // of key, once entered
	first  bool     // entry is this call's own

	// refuse encodes why the call cannot be done; nil if it can.
	refuse func(*xdr.Encoder)
}

// read takes a call from its record, to the record's end. An error means that the stream
// is of no more use.
func (s *Server) read(ctx context.Context, r *record, c *conn) (*job, error) {
	j := &job{srv: s, conn: c, call: Call{Peer: c.ends.peer, Local: c.ends.local, flush: c.flush}}
	j.call.Args = xdr.NewDecoder(r)
	err := decodeHeader(&j.call, j.call.Args)
	switch {
	case r.err != nil:
		return nil, r.err
	case errors.Is(err, errVersion), errors.Is(err, errCred):
		j.refuse = func(e *xdr.Encoder) { deny(e, err) }
	case err != nil:
		return nil, err
	default:
		if err := j.decode(ctx, r); err != nil {
			return nil, err
		}
	}
	if err := r.skip(); err != nil {
		j.drop()
		return nil, err
	}
	return j, nil
}

// decode finds the procedure and lets it take its arguments.
func (j *job) decode(ctx context.Context, r *record) error {
	j.proc, j.refuse = j.srv.find(&j.call)
	if j.proc == nil {
		return nil
	}
	err := j.take(ctx)
	switch {
	case r.err != nil:
		j.drop()
		return r.err
	case ctx.Err() != nil:
		j.drop()
		return ctx.Err()
	case j.call.Args.Err() != nil:
		j.drop()
		j.refuse = func(e *xdr.Encoder) { accept(e, acceptGarbageArgs) }
	case err != nil:
		j.drop()
		j.srv.opts.Log.Warn("decode call", "call", j.proc.Name, "host", j.call.Peer.String(), "err", err)
		j.refuse = func(e *xdr.Encoder) { accept(e, acceptSystemErr) }
	case j.proc.Once != nil:
		j.key = keyOf(&j.call, r.beginning())
	}
	return nil
}

// take runs Decode. Foreign bytes must not end the process, whatever they are.
func (j *job) take(ctx context.Context) (err error) {
	defer j.recovered(&err)
	j.answer, err = j.proc.Decode(ctx, &j.call)
	return err
}

// drop frees what Decode took for an answer that will not be.
func (j *job) drop() {
	if j.answer != nil {
		j.call.free()
	}
	j.answer = nil
}

// find returns the procedure a call names, or how to refuse it.
func (s *Server) find(c *Call) (*Procedure, func(*xdr.Encoder)) {
	p := s.program(c.Program)
	if p == nil {
		return nil, func(e *xdr.Encoder) { accept(e, acceptProgUnavail) }
	}
	if c.Version < p.Low || c.Version > p.High {
		return nil, func(e *xdr.Encoder) {
			accept(e, acceptProgMismatch)
			e.Uint32(p.Low)
			e.Uint32(p.High)
		}
	}
	proc := p.Procedure(c.Version, c.Procedure)
	if proc == nil {
		return nil, func(e *xdr.Encoder) { accept(e, acceptProcUnavail) }
	}
	return proc, nil
}

// claim waits for the memory of a large reply.
func (j *job) claim(ctx context.Context) error {
	if j.call.Expect < largeReply {
		return nil
	}
	j.call.Expect = int(min(int64(j.call.Expect), j.srv.opts.ReplyMemory))
	j.call.Pause()
	err := j.srv.memory.Acquire(ctx, int64(j.call.Expect))
	if err != nil {
		j.drop()
	}
	return err
}

// enter finds out whether the call is a repetition, unless that was done. Who entered must
// run.
func (j *job) enter() {
	if j.refuse == nil && j.proc.Once != nil && j.entry == nil {
		j.entry, j.first = j.proc.Once.begin(j.key, j.conn)
	}
}

// quick does the call if that takes no waiting, and reports whether only its answer is left.
func (j *job) quick() (done bool) {
	if j.refuse != nil || j.call.Quick == nil || j.entry != nil && !j.first {
		return false
	}
	var err error
	defer func() {
		if err != nil {
			done, j.answer = true, func(context.Context, *xdr.Encoder) error { return err }
		}
	}()
	defer j.recovered(&err)
	return j.call.Quick()
}

// run does the call and sends the reply, if there is one. It gives back what claim took.
func (j *job) run(ctx context.Context, send func(reply []byte)) {
	j.enter()
	pool := &j.srv.small
	if j.call.Expect >= largeReply {
		pool = &j.srv.large
		defer j.srv.memory.Release(int64(j.call.Expect))
	}
	e := pool.Get().(*xdr.Encoder)
	defer pool.Put(e)
	if reply := j.reply(ctx, e); reply != nil {
		send(reply)
	}
}

// reply returns the reply in e's memory, or a remembered one; nil for none.
func (j *job) reply(ctx context.Context, e *xdr.Encoder) []byte {
	begin(e, j.call.XID)
	if j.refuse != nil {
		j.refuse(e)
		return finish(e)
	}
	if j.entry == nil {
		return j.do(ctx, e)
	}
	if !j.first {
		j.drop()
		return j.entry.wait(ctx)
	}
	reply := j.do(ctx, e)
	j.proc.Once.finish(j.key, j.entry, reply)
	return reply
}

// do runs the Answer.
func (j *job) do(ctx context.Context, e *xdr.Encoder) []byte {
	start := e.Len()
	accept(e, acceptSuccess)
	err := j.safely(ctx, e)
	if errors.Is(err, ErrNoReply) {
		return nil
	}
	if err != nil {
		j.srv.opts.Log.Error("answer call", "call", j.proc.Name, "host", j.call.Peer.String(), "err", err)
		e.Truncate(start)
		accept(e, acceptSystemErr)
	}
	return finish(e)
}

// safely turns a panic into an error: one call must not end the copies of all others.
func (j *job) safely(ctx context.Context, e *xdr.Encoder) (err error) {
	defer j.recovered(&err)
	return j.answer(ctx, e)
}

func (j *job) recovered(err *error) {
	if v := recover(); v != nil {
		j.srv.opts.Log.Error("panic", "call", j.proc.Name, "err", v, "stack", string(debug.Stack()))
		*err = errPanic
	}
}

var errPanic = errors.New("it panicked")
