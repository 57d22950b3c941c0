package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// live is what this process knows about a run beyond its record: whether it may go on,
// how to stop its steps, and the error it ended with, as it was.
type live struct {
	run     string
	attempt int

	ctx      context.Context // ends when the run is canceled
	cancel   context.CancelFunc
	admitted chan struct{} // closed by admit
	admit    func()
	begun    atomic.Bool   // body was entered
	ended    chan struct{} // closed by end
	end      func(error)   // called by body once the flow returned
	err      error         // what it returned; read after ended
}

func newLive(run string, attempt int) *live {
	ctx, cancel := context.WithCancel(context.Background())
	l := &live{
		run: run, attempt: attempt, ctx: ctx, cancel: cancel,
		admitted: make(chan struct{}), ended: make(chan struct{}),
	}
	l.admit = sync.OnceFunc(func() { close(l.admitted) })
	var once sync.Once
	l.end = func(err error) { once.Do(func() { l.err = err; close(l.ended) }) }
	return l
}

// outcome returns what the attempt ended with in this process, if it did.
func (l *live) outcome() (error, bool) {
	select {
	case <-l.ended:
		return l.err, true
	default:
		return nil, false
	}
}

// bind returns a copy of ctx that also ends when the run is canceled.
func (l *live) bind(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// live returns the attempt with that engine id, making it known if it is not.
func (e *Engine) live(id string) *live {
	run, attempt := splitAttempt(id)
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.runs[run]; l != nil && l.attempt == attempt {
		return l
	}
	l := newLive(run, attempt)
	e.runs[run] = l
	return l
}

// envelope is the input of every run: which flow, and its input.
type envelope struct {
	Flow string          `json:"flow"`
	In   json.RawMessage `json:"in"`
}

// body is the one function the engine knows; it finds the flow by name.
func (e *Engine) body(ctx dbos.Context, in envelope) (struct{}, error) {
	id, err := dbos.GetWorkflowID(ctx)
	if err != nil {
		return struct{}{}, err
	}
	l := e.live(id)
	l.begun.Store(true) // before drive looks whether the run was canceled: see unwound
	err = e.drive(ctx, l, in)
	l.end(err)
	return struct{}{}, store(err)
}

// drive waits until the run may go on. A run that nobody asked for stays pending: its
// source's password is known to nobody in this process.
func (e *Engine) drive(ctx dbos.Context, l *live, in envelope) error {
	if !e.cfg.Resume(l.run) {
		select {
		case <-l.admitted:
		case <-l.ctx.Done():
		case <-ctx.Done():
		}
	}
	if err := errors.Join(ctx.Err(), l.ctx.Err()); err != nil {
		return fault.New(fault.Canceled, "run %s was stopped: %w", l.run, err)
	}
	fn, ok := e.flows[in.Flow]
	if !ok {
		return fmt.Errorf("run %s: flow %q is not registered", l.run, in.Flow)
	}
	return fn(&Context{dbos: ctx, e: e, live: l}, in.In)
}
