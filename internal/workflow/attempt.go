package workflow

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// attempt is the state of one attempt of a run in this process, besides its record: whether it may
// continue, how to stop its steps, and the error it ended with. It is safe for concurrent use.
type attempt struct {
	run    string // id of the run
	number int    // number of the attempt, from 1

	ctx      context.Context    // ends when the run is canceled
	cancel   context.CancelFunc // ends ctx
	admitted chan struct{}      // closed by admit
	admit    func()             // closes admitted; further calls do nothing
	since    atomic.Int64       // when it was admitted or last queued again, in Unix milliseconds; 0 if never
	phase    atomic.Int32       // phaseWaiting, phaseBegun or phaseStopped
	ended    chan struct{}      // closed by end
	// end sets err and closes ended; runBody calls it when the flow has returned, and stop if the flow will
	// never begin
	end func(error)
	err error // result of the attempt; valid after ended is closed

	mu         sync.Mutex    // guards the fields below
	unrecorded error         // why the engine could not record this attempt; it runs no step afterwards. nil if all is recorded
	step       chan struct{} // closed when the latest step has returned; nil if no step has begun
	latest     *execution    // execution that owns the record; nil if the body was not entered
}

// An execution is one call of the body for an attempt. The engine makes a second call while the first
// one runs if requeueLate queues the attempt at the moment when it begins.
type execution struct {
	ctx    context.Context    // ends when the attempt is stopped, or when a later execution begins
	cancel context.CancelFunc // ends ctx
	done   chan struct{}      // closed when the body has returned
}

// beginExecution begins an execution. It cancels the previous one first, and waits for its end.
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

// endExecution ends x. It reports whether a later execution has begun, which then owns the record.
func (a *attempt) endExecution(x *execution) bool {
	x.cancel()
	close(x.done)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.latest != x
}

// beginStep records that a step of x begins, and returns a function that records its end. It returns
// fault.Canceled if x was stopped.
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

// stepDone returns a channel that is closed when no step of a stopped attempt is running, whether or
// not that is recorded.
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
	phaseWaiting int32 = iota // the body was not entered
	phaseBegun                // the body was entered
	phaseStopped              // the attempt was canceled before its start, and will not start
)

// stop ends the work of the attempt in this process. An attempt that has not begun never will.
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

// markUnrecorded makes all later steps of the attempt fail with the first error that prevented a
// record, and returns that error.
func (a *attempt) markUnrecorded(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unrecorded == nil {
		a.unrecorded = err
	}
	return a.unrecorded
}

// unrecordedError returns the first error that prevented a record; nil if all is recorded.
func (a *attempt) unrecordedError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unrecorded
}

// newAttempt returns an attempt that waits for its admission. Its context is independent of callers:
// Start may return long before the attempt ends.
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

// localOutcome returns the error that the attempt ended with in this process. It returns false if it
// has not ended here.
func (a *attempt) localOutcome() (error, bool) {
	select {
	case <-a.ended:
		return a.err, true
	default:
		return nil, false
	}
}

// bindContext returns a copy of ctx that also ends when x is stopped, and a function that releases it.
func (x *execution) bindContext(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(x.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// engineID returns the engine's id of the attempt.
func (a *attempt) engineID() string { return attemptID(a.run, a.number) }

// attempts contains the latest attempt of each run that this process started or waits for. It is safe
// for concurrent use.
type attempts struct {
	mu     sync.Mutex          // guards latest
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

// latestOf returns the latest attempt of a run in this process; nil if none exists.
func (t *attempts) latestOf(run string) *attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latest[run]
}

// forget removes the attempt of a run that was deleted.
func (t *attempts) forget(run string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.latest, run)
}

// underWay returns the attempts that have not ended in this process, in no order.
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
