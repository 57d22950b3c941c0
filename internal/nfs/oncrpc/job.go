package oncrpc

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// largeReply is the size from which Options.ReplyMemory bounds the memory of replies, in bytes.
const largeReply = 8 << 10

// job is a call that was read from its record, until it is answered. One goroutine uses it at a time.
type job struct {
	srv     *Server     // server that executes the call
	conn    *conn       // connection that the call came from
	call    Call        // header and hooks of the call
	proc    *Procedure  // procedure of the call; nil if refuse is set
	answer  Answer      // result of Decode; nil if it failed or was freed
	key     cacheKey    // key in proc.Once, if that is set
	entry   *cacheEntry // entry of key; nil before enterCache
	isFirst bool        // this call must be executed: it is not a repetition

	// refuse encodes the reason why the call is not executed; nil if it is.
	refuse func(*xdr.Encoder)
}

// readJob reads a call up to the end of its record. After an error the stream is unusable, and nothing
// is left to free.
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

// decodeCall finds the procedure and decodes its arguments. Errors that concern only this call set
// refuse; others are returned.
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

// runDecode calls Decode. It returns a panic as an error, because bytes from the network must not end
// the process.
func (j *job) runDecode(ctx context.Context) (err error) {
	defer j.recoverPanic(&err)
	j.answer, err = j.proc.Decode(ctx, &j.call)
	return err
}

// freeCall frees the resources of a decoded call whose Answer will not be called.
func (j *job) freeCall() {
	if j.answer != nil {
		j.call.freeDecoded()
	}
	j.answer = nil
}

// findProcedure returns the procedure of a call, or a function that encodes why the call is refused.
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

// reserveReplyMemory waits for the memory of a large reply. The call is freed if ctx ends first.
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

// enterCache looks the call up in its Cache, once. The caller must call run after it, which finishes
// the entry.
func (j *job) enterCache() {
	if j.refuse == nil && j.proc.Once != nil && j.entry == nil {
		j.entry, j.isFirst = j.proc.Once.begin(j.key, j.conn)
	}
}

// tryQuick executes the call if that need not wait, and reports whether only its reply is missing.
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

// run executes the call and passes the reply to send, unless there is no reply. It releases the memory
// from reserveReplyMemory. send must not keep the reply.
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

// makeReply returns the reply, in the memory of e or from the Cache. It returns nil if the call is not
// answered.
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
	j.proc.Once.finish(j.entry, reply)
	return reply
}

// encodeAnswer calls the Answer and returns its reply; nil after ErrNoReply. Any other error becomes
// SYSTEM_ERR.
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

// callAnswer calls the Answer. It returns a panic as an error: one call must not end the copies of all
// disks.
func (j *job) callAnswer(ctx context.Context, e *xdr.Encoder) (err error) {
	defer j.recoverPanic(&err)
	return j.answer(ctx, e)
}

// recoverPanic must be deferred. It logs a panic and sets err.
func (j *job) recoverPanic(err *error) {
	if v := recover(); v != nil {
		j.srv.opts.Log.Error("panic", "call", j.proc.Name, "err", v, "stack", string(debug.Stack()))
		*err = errPanic
	}
}

// errPanic replaces a panic, whose value is in the log.
var errPanic = errors.New("it panicked")
