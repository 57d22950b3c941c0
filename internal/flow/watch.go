package flow

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

const (
	// watchPause is between two looks at what other executors did: one query for everything that
	// goes on here or is waited for here.
	watchPause = time.Second

	// watchAtOnce bounds a query.
	watchAtOnce = 2000

	// sendAgain is how long after it was admitted an attempt that was taken off the queue must have
	// begun. A claim whose answer was lost with the connection is one that nobody knows of.
	sendAgain = 10 * time.Second
)

// await is an attempt at another executor that somebody here waits for.
type await struct {
	over    chan struct{} // closed by settle
	waiters int
}

// awaitOther waits until the attempt is over on record.
func (e *Engine) awaitOther(ctx context.Context, st Status) error {
	id := attemptID(st.Run, st.Attempt)
	a := e.expect(id)
	defer e.unexpect(id, a)
	select {
	case <-a.over:
		return nil
	case <-e.root.Done():
		return errClosed()
	case <-ctx.Done():
		return fault.New(fault.Canceled, "wait for run %s: %w", st.Run, ctx.Err())
	}
}

func (e *Engine) expect(id string) *await {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.awaited[id]
	if a == nil {
		a = &await{over: make(chan struct{})}
		e.awaited[id] = a
	}
	a.waiters++
	return a
}

func (e *Engine) unexpect(id string, a *await) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a.waiters--; a.waiters == 0 && e.awaited[id] == a {
		delete(e.awaited, id)
	}
}

// watch looks for what other executors ended, until the engine is closed.
func (e *Engine) watch() {
	defer close(e.watched)
	for pause(e.root, watchPause) {
		if err := e.look(e.root); err != nil && e.root.Err() == nil {
			e.cfg.Log.Debug("look for what others ended", "err", err)
		}
	}
}

func (e *Engine) look(ctx context.Context) error {
	ids, late := e.underWay(time.Now())
	for some := range slices.Chunk(ids, watchAtOnce) {
		over, err := e.list(ctx, dbos.WithFilterWorkflowIDs(some...), dbos.WithFilterLoadOutput(false), dbos.WithFilterStatus(
			dbos.WorkflowStatusCancelled, dbos.WorkflowStatusSuccess, dbos.WorkflowStatusError, dbos.WorkflowStatusMaxRecoveryAttemptsExceeded))
		if err != nil {
			return err
		}
		for _, w := range over {
			e.settle(w)
		}
	}
	return e.sendFor(ctx, late)
}

// underWay returns the attempts that go on or are to begin here, or are waited for, and those of
// them that should have begun by now.
func (e *Engine) underWay(now time.Time) (ids []string, late []*live) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.runs {
		if l.over() {
			continue
		}
		ids = append(ids, attemptID(l.run, l.attempt))
		if sent := l.since.Load(); sent != 0 && l.phase.Load() == waits && now.Sub(time.UnixMilli(sent)) > sendAgain {
			late = append(late, l)
		}
	}
	return slices.AppendSeq(ids, maps.Keys(e.awaited)), late
}

// settle tells whoever it concerns that an attempt is over on record. What goes on here is only ended
// by a cancellation: that is another executor's, or a second thought of ours.
func (e *Engine) settle(w dbos.WorkflowStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.awaited[w.ID]; a != nil {
		close(a.over)
		delete(e.awaited, w.ID)
	}
	run, attempt := splitAttempt(w.ID)
	if l := e.runs[run]; l != nil && l.attempt == attempt && w.Status == dbos.WorkflowStatusCancelled {
		l.stop()
	}
}

// sendFor puts attempts back on our queue that were taken off it and did not begin. If one begins at
// this moment, the engine executes it a second time: see execution.
func (e *Engine) sendFor(ctx context.Context, late []*live) error {
	if len(late) == 0 {
		return nil
	}
	var ids []string
	for _, l := range late {
		l.since.Store(time.Now().UnixMilli())
		ids = append(ids, attemptID(l.run, l.attempt))
	}
	taken, err := e.list(ctx, dbos.WithFilterWorkflowIDs(ids...), dbos.WithFilterLoadOutput(false),
		dbos.WithFilterStatus(dbos.WorkflowStatusPending), dbos.WithFilterQueueName(e.queueName()))
	if err != nil || len(taken) == 0 {
		return err
	}
	ids = ids[:0]
	for _, w := range taken {
		ids = append(ids, w.ID)
	}
	_, err = dbos.ResumeWorkflows[struct{}](e.client(ctx), ids, dbos.WithResumeQueue(e.queueName()))
	return err
}
