package workflow

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

const (
	// queuePrefix and the executor's name form the name of its queue. The engine's default queue is not
	// used, because all executors take runs from it.
	queuePrefix = "decamp-"

	// queuePoll is how often an executor polls its queue, and the maximum delay of a run's start.
	queuePoll = 250 * time.Millisecond

	// coalesce is the interval of the engine's notifications, which decamp does not use. The default of 10
	// ms costs a hundred wake-ups per second.
	coalesce = time.Second
)

// isShared reports whether other executors use the same record.
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

// queueName returns the name of this executor's queue; "" is the engine's own, which is enough for a
// single process.
func (r *record) queueName() string {
	if r.queue == nil {
		return ""
	}
	return r.queue.GetName()
}

// ownerOf returns the executor of an attempt; "" if the record is not shared. A canceled attempt is in
// no queue, so its last executor is returned.
func (r *record) ownerOf(w dbos.WorkflowStatus) string {
	if !r.isShared() {
		return ""
	}
	name, _ := strings.CutPrefix(w.QueueName, queuePrefix)
	return cmp.Or(name, w.ExecutorID)
}

// isOwn reports whether this executor owns the run's current attempt.
func (r *record) isOwn(st Status) bool { return !r.isShared() || st.Executor == r.executor }

// callerContext is a context for calls of the engine. It ends with the caller's context, but hides its values:
// the engine would treat a step in them as the caller.
type callerContext struct{ context.Context }

// Value implements context.Context. It has no values.
func (callerContext) Value(any) any { return nil }

// clientFor returns the engine's interface for calls that end with ctx.
func (r *record) clientFor(ctx context.Context) dbos.Client {
	return dbos.From(r.root, callerContext{ctx})
}
