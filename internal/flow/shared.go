package flow

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

const (
	// queuePrefix and the executor's name are the queue that its runs go through. The engine's own
	// queue is everybody's: what lies there any executor takes.
	queuePrefix = "decamp-"

	// queuePoll is how often an executor looks into its queue, and how late a run begins.
	queuePoll = 250 * time.Millisecond

	// coalesce is how long the engine gathers notifications that we use none of; its own 10 ms
	// are a hundred wake-ups a second for nothing.
	coalesce = time.Second
)

// shared reports whether other executors have the same record.
func (e *Engine) shared() bool { return e.pg != nil }

// openShared opens the record on PostgreSQL and the queue in it that only this executor takes from.
func (e *Engine) openShared(ctx context.Context, cfg dbos.Config) (err error) {
	if e.pg, err = openPostgres(ctx, e.cfg.URL, e.cfg.Executor, e.cfg.Insecure); err != nil {
		return err
	}
	cfg.SystemDBPool, cfg.DatabaseSchema, cfg.ExecutorID = e.pg.Pool, schema, e.cfg.Executor
	cfg.NotificationCoalesceInterval, cfg.SystemDBStartupTimeout = coalesce, time.Minute
	if err := e.pg.alone(ctx, func() error { return e.start(ctx, cfg) }); err != nil {
		return err
	}
	e.queue, err = dbos.RegisterQueue(e.root, queuePrefix+e.cfg.Executor,
		dbos.WithQueueBasePollingInterval(queuePoll), dbos.WithQueueOnConflict(dbos.QueueConflictAlwaysUpdate))
	if err != nil {
		return err
	}
	dbos.ListenQueues(e.root, e.queueName())
	e.pg.wait(true)
	return nil
}

// queueName returns this executor's; "" is the engine's own, which is enough for one alone.
func (e *Engine) queueName() string {
	if e.queue == nil {
		return ""
	}
	return e.queue.GetName()
}

// owner returns whose attempt it is, or was when it was canceled: that takes it off its queue.
func (e *Engine) owner(w dbos.WorkflowStatus) string {
	if !e.shared() {
		return ""
	}
	name, _ := strings.CutPrefix(w.QueueName, queuePrefix)
	return cmp.Or(name, w.ExecutorID)
}

// own reports whether the run's current attempt is this executor's.
func (e *Engine) own(st Status) bool { return !e.shared() || st.Executor == e.cfg.Executor }

// caller is a context of somebody else's for calls of the engine: it ends when theirs does, but
// does not hand on whose step they may come from, which the engine would take for a call by that.
type caller struct{ context.Context }

func (caller) Value(any) any { return nil }

func (e *Engine) client(ctx context.Context) dbos.Client { return dbos.From(e.root, caller{ctx}) }
