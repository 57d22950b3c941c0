package workflow

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// attempt is what this process knows of one attempt of a run beside its record: whether it may go on,
// how to stop its steps, and the error it ended with. It is safe for concurrent use.
type attempt struct {
	run    string
	number int // number of the attempt, from 1

	ctx      context.Context // ends when the run is canceled
	cancel   context.CancelFunc
	admitted chan struct{} // closed by admit
	admit    func()
	since    atomic.Int64  // when it was admitted or last sent for, as Unix milliseconds; 0: never
	phase    atomic.Int32  // see phases
	ended    chan struct{} // closed by end
	end      func(error)   // called by body once the flow returned, or by stop if it never will begin
	err      error         // result; valid after ended

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

// beginExecution begins an execution, after the end of the one before it.
func (a *attempt) beginExecution() *execution {
	x := &execution{done: make(chan struct{})}
	x.ctx, x.cancel = context.WithCancel(a.ctx)
	a.mu.Lock()
	before := a.latest
	a.latest = x
	a.mu.Unlock()
	if before != nil {
		before.cancel()
		<-before.done
	}
	return x
}

// endExecution ends an execution, and reports whether a later one has begun.
func (a *attempt) endExecution(x *execution) bool {
	x.cancel()
	close(x.done)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.latest != x
}

// beginStep records that a step of x begins, and returns a function that records its end. A stopped
// execution begins no step.
func (a *attempt) beginStep(x *execution) (done func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := x.ctx.Err(); err != nil {
		return nil, fault.New(fault.Canceled, "run %s was stopped: %w", a.run, err)
	}
	step := make(chan struct{})
	a.step = step
	return func() { close(step) }, nil
}

// stepDone is closed once an attempt that was stopped does nothing any more, whether or not that is
// on record.
func (a *attempt) stepDone() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.step != nil {
		return a.step
	}
	none := make(chan struct{})
	close(none)
	return none
}

// Phases of an attempt in this process.
const (
	phaseWaiting int32 = iota // its body was not entered
	phaseBegun                // the attempt was started
	phaseStopped              // it was canceled before its start, and will not start
)

// stop ends what the attempt does here. One that did not begin never will.
func (a *attempt) stop() {
	a.cancel()
	if a.phase.CompareAndSwap(phaseWaiting, phaseStopped) {
		a.end(fault.New(fault.Canceled, "run %s was canceled", a.run))
	}
}

// isOver reports whether the attempt ended in this process.
func (a *attempt) isOver() bool {
	_, over := a.localOutcome()
	return over
}

// markUnrecorded has everything later in the attempt fail as the first thing that could not be recorded.
func (a *attempt) markUnrecorded(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unrecorded == nil {
		a.unrecorded = err
	}
	return a.unrecorded
}

func (a *attempt) unrecordedError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unrecorded
}

func newAttempt(run string, number int) *attempt {
	ctx, cancel := context.WithCancel(context.Background())
	a := &attempt{
		run: run, number: number, ctx: ctx, cancel: cancel,
		admitted: make(chan struct{}), ended: make(chan struct{}),
	}
	a.admit = sync.OnceFunc(func() { a.since.Store(time.Now().UnixMilli()); close(a.admitted) })
	var once sync.Once
	a.end = func(err error) { once.Do(func() { a.err = err; close(a.ended) }) }
	return a
}

// localOutcome returns what the attempt ended with in this process, if it did.
func (a *attempt) localOutcome() (error, bool) {
	select {
	case <-a.ended:
		return a.err, true
	default:
		return nil, false
	}
}

// bindContext returns a copy of ctx that also ends when the execution is stopped.
func (x *execution) bindContext(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(x.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// engineID returns what the engine calls the attempt.
func (a *attempt) engineID() string { return attemptID(a.run, a.number) }

// attempts holds the latest attempt of each run that this process had to do with. It is safe for
// concurrent use.
type attempts struct {
	mu     sync.Mutex
	latest map[string]*attempt // latest attempt by run
}

// getOrAdd returns the attempt with that engine id. It adds the attempt if it is not known.
func (t *attempts) getOrAdd(id string) *attempt {
	run, number := splitAttempt(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.latest[run]; a != nil && a.number == number {
		return a
	}
	a := newAttempt(run, number)
	t.latest[run] = a
	return a
}

// latestOf returns the latest attempt of a run that this process had to do with, or nil.
func (t *attempts) latestOf(run string) *attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latest[run]
}

func (t *attempts) forget(run string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.latest, run)
}

// underWay returns the attempts that are not over in this process.
func (t *attempts) underWay() (all []*attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.latest {
		if !a.isOver() {
			all = append(all, a)
		}
	}
	return all
}
