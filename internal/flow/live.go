package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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
	since    atomic.Int64  // when it was admitted or last sent for, as Unix milliseconds; 0: never
	phase    atomic.Int32  // see phases
	ended    chan struct{} // closed by end
	end      func(error)   // called by body once the flow returned, or by stop if it never will begin
	err      error         // what it returned; read after ended

	mu         sync.Mutex
	unrecorded error         // why the engine could not record what this attempt did; it did nothing since
	step       chan struct{} // closed when the step that goes on returns; nil: none does
	latest     *execution    // the one that owns the record; nil: the body was not entered
}

// An execution is one call of the body for an attempt. The engine makes a second call while the first
// one runs if sendFor queues the attempt at the moment when it begins.
type execution struct {
	ctx    context.Context // ends when the attempt is stopped, or when a later execution begins
	cancel context.CancelFunc
	done   chan struct{} // closed when the body has returned
}

// execute begins an execution, after the end of the one before it.
func (l *live) execute() *execution {
	x := &execution{done: make(chan struct{})}
	x.ctx, x.cancel = context.WithCancel(l.ctx)
	l.mu.Lock()
	before := l.latest
	l.latest = x
	l.mu.Unlock()
	if before != nil {
		before.cancel()
		<-before.done
	}
	return x
}

// superseded ends an execution, and reports whether a later one has begun.
func (l *live) superseded(x *execution) bool {
	x.cancel()
	close(x.done)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest != x
}

// work records that a step of x begins, and returns a function that records its end. A stopped
// execution begins no step.
func (l *live) work(x *execution) (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := x.ctx.Err(); err != nil {
		return nil, fault.New(fault.Canceled, "run %s was stopped: %w", l.run, err)
	}
	step := make(chan struct{})
	l.step = step
	return func() { close(step) }, nil
}

// still is closed once an attempt that was stopped does nothing any more, whether or not that is
// on record.
func (l *live) still() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.step != nil {
		return l.step
	}
	none := make(chan struct{})
	close(none)
	return none
}

// Phases of an attempt in this process.
const (
	waits   int32 = iota // its body was not entered
	begun                // it was
	stopped              // it was canceled before, and will not be
)

// stop ends what the attempt does here. One that did not begin never will.
func (l *live) stop() {
	l.cancel()
	if l.phase.CompareAndSwap(waits, stopped) {
		l.end(fault.New(fault.Canceled, "run %s was canceled", l.run))
	}
}

// over reports whether the attempt ended in this process.
func (l *live) over() bool {
	_, over := l.outcome()
	return over
}

// spoil has everything later in the attempt fail as the first thing that could not be recorded.
func (l *live) spoil(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unrecorded == nil {
		l.unrecorded = err
	}
	return l.unrecorded
}

func (l *live) spoiled() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unrecorded
}

func newLive(run string, attempt int) *live {
	ctx, cancel := context.WithCancel(context.Background())
	l := &live{
		run: run, attempt: attempt, ctx: ctx, cancel: cancel,
		admitted: make(chan struct{}), ended: make(chan struct{}),
	}
	l.admit = sync.OnceFunc(func() { l.since.Store(time.Now().UnixMilli()); close(l.admitted) })
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

// bind returns a copy of ctx that also ends when the execution is stopped.
func (x *execution) bind(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(x.ctx, cancel)
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

// known returns what this process knows of a run's latest attempt that it had to do with, or nil.
func (e *Engine) known(run string) *live {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[run]
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
	if !l.phase.CompareAndSwap(waits, begun) && l.phase.Load() == stopped { // before drive looks whether it was canceled: see unwound
		return struct{}{}, store(l.err)
	}
	x := l.execute()
	err = e.drive(ctx, l, x, in)
	if l.superseded(x) {
		return struct{}{}, dbos.ErrConflictingWorkflowID // the engine records no outcome for that
	}
	if spoiled := l.spoiled(); spoiled != nil {
		err = errors.Join(spoiled, dbos.ErrConflictingWorkflowID)
	}
	l.end(err)
	return struct{}{}, store(err)
}

// drive waits until the run may go on. A run that nobody asked for stays pending: its
// source's password is known to nobody in this process.
func (e *Engine) drive(ctx dbos.Context, l *live, x *execution, in envelope) error {
	if !e.cfg.Resume(l.run) {
		select {
		case <-l.admitted:
		case <-x.ctx.Done():
		case <-ctx.Done():
		}
	}
	if err := errors.Join(ctx.Err(), x.ctx.Err()); err != nil {
		return fault.New(fault.Canceled, "run %s was stopped: %w", l.run, err)
	}
	fn, ok := e.flows[in.Flow]
	if !ok {
		return fmt.Errorf("run %s: flow %q is not registered", l.run, in.Flow)
	}
	raw, err := e.verifyDoc(inputUse, l.run, in.Flow, in.In)
	if err != nil {
		return err
	}
	return fn(&Context{dbos: ctx, e: e, live: l, execution: x}, raw)
}
