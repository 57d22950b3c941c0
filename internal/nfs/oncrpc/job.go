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
	srv     *Server
	conn    *conn
	call    Call
	proc    *Procedure
	answer  Answer
	key     cacheKey    // where proc.Once is set
	entry   *cacheEntry // of key, once entered
	isFirst bool        // entry is this call's own

	// refuse encodes why the call cannot be done; nil if it can.
	refuse func(*xdr.Encoder)
}

// readJob takes a call from its record, to the record's end. An error means that the stream
// is of no more use.
func (s *Server) readJob(ctx context.Context, r *record, c *conn) (*job, error) {
	j := &job{srv: s, conn: c, call: Call{Peer: c.ends.peer, Local: c.ends.local, flush: c.flush}}
	j.call.Args = xdr.NewDecoder(r)
	err := decodeHeader(&j.call, j.call.Args)
	switch {
	case r.err != nil:
		return nil, r.err
	case errors.Is(err, errVersion), errors.Is(err, errCred):
		j.refuse = func(e *xdr.Encoder) { encodeDenied(e, err) }
	case err != nil:
		return nil, err
	default:
		if err := j.decodeCall(ctx, r); err != nil {
			return nil, err
		}
	}
	if err := r.skipRest(); err != nil {
		j.freeCall()
		return nil, err
	}
	return j, nil
}

// decodeCall finds the procedure and lets it take its arguments.
func (j *job) decodeCall(ctx context.Context, r *record) error {
	j.proc, j.refuse = j.srv.findProcedure(&j.call)
	if j.proc == nil {
		return nil
	}
	err := j.runDecode(ctx)
	switch {
	case r.err != nil:
		j.freeCall()
		return r.err
	case ctx.Err() != nil:
		j.freeCall()
		return ctx.Err()
	case j.call.Args.Err() != nil:
		j.freeCall()
		j.refuse = func(e *xdr.Encoder) { encodeAccepted(e, acceptGarbageArgs) }
	case err != nil:
		j.freeCall()
		j.srv.opts.Log.Warn("decode call", "call", j.proc.Name, "host", j.call.Peer.String(), "err", err)
		j.refuse = func(e *xdr.Encoder) { encodeAccepted(e, acceptSystemErr) }
	case j.proc.Once != nil:
		j.key = keyOf(&j.call, r.firstBytes())
	}
	return nil
}

// runDecode runs Decode. Foreign bytes must not end the process, whatever they are.
func (j *job) runDecode(ctx context.Context) (err error) {
	defer j.recoverPanic(&err)
	j.answer, err = j.proc.Decode(ctx, &j.call)
	return err
}

// freeCall frees what Decode took for an answer that will not be.
func (j *job) freeCall() {
	if j.answer != nil {
		j.call.freeDecoded()
	}
	j.answer = nil
}

// findProcedure returns the procedure a call names, or how to refuse it.
func (s *Server) findProcedure(c *Call) (*Procedure, func(*xdr.Encoder)) {
	p := s.findProgram(c.Program)
	if p == nil {
		return nil, func(e *xdr.Encoder) { encodeAccepted(e, acceptProgUnavail) }
	}
	if c.Version < p.Low || c.Version > p.High {
		return nil, func(e *xdr.Encoder) {
			encodeAccepted(e, acceptProgMismatch)
			e.Uint32(p.Low)
			e.Uint32(p.High)
		}
	}
	proc := p.Procedure(c.Version, c.Procedure)
	if proc == nil {
		return nil, func(e *xdr.Encoder) { encodeAccepted(e, acceptProcUnavail) }
	}
	return proc, nil
}

// reserveReplyMemory waits for the memory of a large reply.
func (j *job) reserveReplyMemory(ctx context.Context) error {
	if j.call.Expect < largeReply {
		return nil
	}
	j.call.Expect = int(min(int64(j.call.Expect), j.srv.opts.ReplyMemory))
	j.call.Pause()
	err := j.srv.memory.Acquire(ctx, int64(j.call.Expect))
	if err != nil {
		j.freeCall()
	}
	return err
}

// enterCache finds out whether the call is a repetition, unless that was done. Who entered must
// run.
func (j *job) enterCache() {
	if j.refuse == nil && j.proc.Once != nil && j.entry == nil {
		j.entry, j.isFirst = j.proc.Once.begin(j.key, j.conn)
	}
}

// tryQuick does the call if that takes no waiting, and reports whether only its answer is left.
func (j *job) tryQuick() (done bool) {
	if j.refuse != nil || j.call.Quick == nil || j.entry != nil && !j.isFirst {
		return false
	}
	var err error
	defer func() {
		if err != nil {
			done, j.answer = true, func(context.Context, *xdr.Encoder) error { return err }
		}
	}()
	defer j.recoverPanic(&err)
	return j.call.Quick()
}

// run does the call and sends the reply, if there is one. It gives back what claim took.
func (j *job) run(ctx context.Context, send func(reply []byte)) {
	j.enterCache()
	pool := &j.srv.small
	if j.call.Expect >= largeReply {
		pool = &j.srv.large
		defer j.srv.memory.Release(int64(j.call.Expect))
	}
	e := pool.Get().(*xdr.Encoder)
	defer pool.Put(e)
	if reply := j.makeReply(ctx, e); reply != nil {
		send(reply)
	}
}

// makeReply returns the reply in e's memory, or a remembered one; nil for none.
func (j *job) makeReply(ctx context.Context, e *xdr.Encoder) []byte {
	beginReply(e, j.call.XID)
	if j.refuse != nil {
		j.refuse(e)
		return finishReply(e)
	}
	if j.entry == nil {
		return j.encodeAnswer(ctx, e)
	}
	if !j.isFirst {
		j.freeCall()
		return j.entry.wait(ctx)
	}
	reply := j.encodeAnswer(ctx, e)
	j.proc.Once.finish(j.key, j.entry, reply)
	return reply
}

// encodeAnswer runs the Answer.
func (j *job) encodeAnswer(ctx context.Context, e *xdr.Encoder) []byte {
	start := e.Len()
	encodeAccepted(e, acceptSuccess)
	err := j.callAnswer(ctx, e)
	if errors.Is(err, ErrNoReply) {
		return nil
	}
	if err != nil {
		j.srv.opts.Log.Error("answer call", "call", j.proc.Name, "host", j.call.Peer.String(), "err", err)
		e.Truncate(start)
		encodeAccepted(e, acceptSystemErr)
	}
	return finishReply(e)
}

// callAnswer turns a panic into an error: one call must not end the copies of all others.
func (j *job) callAnswer(ctx context.Context, e *xdr.Encoder) (err error) {
	defer j.recoverPanic(&err)
	return j.answer(ctx, e)
}

func (j *job) recoverPanic(err *error) {
	if v := recover(); v != nil {
		j.srv.opts.Log.Error("panic", "call", j.proc.Name, "err", v, "stack", string(debug.Stack()))
		*err = errPanic
	}
}

var errPanic = errors.New("it panicked")
