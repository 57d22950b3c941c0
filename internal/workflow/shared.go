package workflow

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

const (
	// queuePrefix and the executor's name form the queue of its runs. All executors take runs from the
	// engine's default queue.
	queuePrefix = "decamp-"

	// queuePoll is how often an executor looks into its queue, and how late a run begins.
	queuePoll = 250 * time.Millisecond

	// coalesce is how long the engine gathers notifications that we use none of; its own 10 ms
	// are a hundred wake-ups a second for nothing.
	coalesce = time.Second
)

// isShared reports whether other executors have the same record.
func (r *record) isShared() bool { return r.pg != nil }

// openShared opens the record on PostgreSQL and the queue in it that only this executor takes from.
func (r *record) openShared(ctx context.Context, at Config, cfg dbos.Config) (err error) {
	if r.pg, err = openPostgres(ctx, at.URL, r.executor, at.Insecure); err != nil {
		return err
	}
	cfg.SystemDBPool, cfg.DatabaseSchema, cfg.ExecutorID = r.pg.Pool, schema, r.executor
	cfg.NotificationCoalesceInterval, cfg.SystemDBStartupTimeout = coalesce, time.Minute
	if err := r.pg.withMigrationLock(ctx, func() error { return r.startEngine(ctx, cfg) }); err != nil {
		return err
	}
	r.queue, err = dbos.RegisterQueue(r.root, queuePrefix+r.executor,
		dbos.WithQueueBasePollingInterval(queuePoll), dbos.WithQueueOnConflict(dbos.QueueConflictAlwaysUpdate))
	if err != nil {
		return err
	}
	dbos.ListenQueues(r.root, r.queueName())
	r.pg.setPatient(true)
	return nil
}

// queueName returns this executor's; "" is the engine's own, which is enough for one alone.
func (r *record) queueName() string {
	if r.queue == nil {
		return ""
	}
	return r.queue.GetName()
}

// ownerOf returns whose attempt it is, or was when it was canceled: that takes it off its queue.
func (r *record) ownerOf(w dbos.WorkflowStatus) string {
	if !r.isShared() {
		return ""
	}
	name, _ := strings.CutPrefix(w.QueueName, queuePrefix)
	return cmp.Or(name, w.ExecutorID)
}

// isOwn reports whether the run's current attempt is this executor's.
func (r *record) isOwn(st Status) bool { return !r.isShared() || st.Executor == r.executor }

// caller is a context for calls of the engine: it ends with the caller's, but hides a step in it, which
// the engine would consider the caller.
type caller struct{ context.Context }

func (caller) Value(any) any { return nil }

func (r *record) clientFor(ctx context.Context) dbos.Client { return dbos.From(r.root, caller{ctx}) }
