package workflow

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

const (
	// watchPause is the interval at which the watcher reads what other executors did: one query for all
	// attempts that are active or awaited here.
	watchPause = time.Second

	// watchAtOnce bounds the attempts of one query.
	watchAtOnce = 2000

	// requeueAfter is the time after its admission in which an attempt that was taken off the queue must
	// begin. If the response to a claim is lost with the connection, the attempt has no executor.
	requeueAfter = 10 * time.Second
)

// watcher reads what other executors did: they end attempts that are active here, and attempts that a
// caller here waits for. It is safe for concurrent use.
type watcher struct {
	record   *record       // shared record
	attempts *attempts     // attempts in this process
	log      *slog.Logger  // receives failed reads at Debug
	done     chan struct{} // closed when watchLoop returns; nil if it was not started

	mu      sync.Mutex                 // guards awaited
	awaited map[string]*awaitedAttempt // attempts of other executors that callers wait for, by id
}

// newWatcher returns a watcher that is not started.
func newWatcher(r *record, all *attempts, log *slog.Logger) *watcher {
	return &watcher{record: r, attempts: all, log: log, awaited: map[string]*awaitedAttempt{}}
}

// awaitedAttempt is an attempt of another executor that callers here wait for.
type awaitedAttempt struct {
	over    chan struct{} // closed by releaseWaiters when the attempt has ended
	waiters int           // number of callers that wait
}

// waitRemote waits until the record shows that the attempt of another executor has ended.
func (w *watcher) waitRemote(ctx context.Context, st Status) error {
	id := attemptID(st.Run, st.Attempt)
	awaited := w.addWaiter(id)
	defer w.removeWaiter(id, awaited)
	select {
	case <-awaited.over:
		return nil
	case <-w.record.root.Done():
		return errClosed()
	case <-ctx.Done():
		return fault.New(fault.Canceled, "wait for run %s: %w", st.Run, ctx.Err())
	}
}

// addWaiter adds a caller that waits for an attempt. removeWaiter must follow.
func (w *watcher) addWaiter(id string) *awaitedAttempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	awaited := w.awaited[id]
	if awaited == nil {
		awaited = &awaitedAttempt{over: make(chan struct{})}
		w.awaited[id] = awaited
	}
	awaited.waiters++
	return awaited
}

// removeWaiter ends addWaiter. The last waiter removes the entry, unless it was replaced meanwhile.
func (w *watcher) removeWaiter(id string, awaited *awaitedAttempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if awaited.waiters--; awaited.waiters == 0 && w.awaited[id] == awaited {
		delete(w.awaited, id)
	}
}

// start begins to watch, until the engine is closed. It must be called once at most.
func (w *watcher) start() {
	w.done = make(chan struct{})
	go w.watchLoop()
}

// wait returns when the watcher has ended; at once if it was not started.
func (w *watcher) wait() {
	if w.done != nil {
		<-w.done
	}
}

// watchLoop calls checkRecord every watchPause until the engine is closed.
func (w *watcher) watchLoop() {
	defer close(w.done)
	root := w.record.root
	for sleepFor(root, watchPause) {
		if err := w.checkRecord(root); err != nil && root.Err() == nil {
			w.log.Debug("look for what others ended", "err", err)
		}
	}
}

// checkRecord reads which attempts have ended on record, and acts on them.
func (w *watcher) checkRecord(ctx context.Context) error {
	ids, late := w.underWay(time.Now())
	for some := range slices.Chunk(ids, watchAtOnce) {
		over, err := w.record.listAttempts(ctx, dbos.WithFilterWorkflowIDs(some...), dbos.WithFilterLoadOutput(false), dbos.WithFilterStatus(
			dbos.WorkflowStatusCancelled, dbos.WorkflowStatusSuccess, dbos.WorkflowStatusError, dbos.WorkflowStatusMaxRecoveryAttemptsExceeded))
		if err != nil {
			return err
		}
		for _, status := range over {
			w.handleEnded(status)
		}
	}
	return w.requeueLate(ctx, late)
}

// underWay returns the ids of the attempts that are active or admitted here, or awaited, and those of
// them that should have begun by now.
func (w *watcher) underWay(now time.Time) (ids []string, late []*attempt) {
	for _, a := range w.attempts.underWay() {
		ids = append(ids, a.engineID())
		if sent := a.since.Load(); sent != 0 && a.phase.Load() == phaseWaiting && now.Sub(time.UnixMilli(sent)) > requeueAfter {
			late = append(late, a)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.AppendSeq(ids, maps.Keys(w.awaited)), late
}

// handleEnded wakes the callers that wait for an attempt that has ended on record. Work in this process
// ends only if the attempt was canceled, by another executor or by this one.
func (w *watcher) handleEnded(status dbos.WorkflowStatus) {
	w.releaseWaiters(status.ID)
	run, number := splitAttempt(status.ID)
	if a := w.attempts.latestOf(run); a != nil && a.number == number && status.Status == dbos.WorkflowStatusCancelled {
		a.stop()
	}
}

// releaseWaiters wakes the callers that wait for an attempt.
func (w *watcher) releaseWaiters(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if awaited := w.awaited[id]; awaited != nil {
		close(awaited.over)
		delete(w.awaited, id)
	}
}

// requeueLate queues the attempts again that were taken off our queue and did not begin. If one begins
// at this moment, the engine executes it a second time: see execution.
func (w *watcher) requeueLate(ctx context.Context, late []*attempt) error {
	if len(late) == 0 {
		return nil
	}
	var ids []string
	for _, a := range late {
		a.since.Store(time.Now().UnixMilli())
		ids = append(ids, a.engineID())
	}
	taken, err := w.record.listAttempts(ctx, dbos.WithFilterWorkflowIDs(ids...), dbos.WithFilterLoadOutput(false),
		dbos.WithFilterStatus(dbos.WorkflowStatusPending), dbos.WithFilterQueueName(w.record.queueName()))
	if err != nil || len(taken) == 0 {
		return err
	}
	ids = ids[:0]
	for _, status := range taken {
		ids = append(ids, status.ID)
	}
	_, err = dbos.ResumeWorkflows[struct{}](w.record.clientFor(ctx), ids, dbos.WithResumeQueue(w.record.queueName()))
	return err
}
