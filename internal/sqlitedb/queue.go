package sqlitedb

import (
	"context"
	"time"
)

// maxWait is the maximum wait in the queue before SQLite is called anyway: the first writer in the
// queue may itself wait for another process. The value is SQLite's busy_timeout.
const maxWait = 5 * time.Second

// A writerQueue is the queue of the writers of this process, because the file has one writer at a time.
// It does not include writers of other processes.
type writerQueue struct{ slot chan struct{} }

// newWriterQueue returns an empty queue.
func newWriterQueue() writerQueue { return writerQueue{make(chan struct{}, 1)} }

// enter returns when the caller may write, or after maxWait. The caller must call leave. If ctx ends
// first, enter fails.
func (q writerQueue) enter(ctx context.Context) (leave func(), err error) {
	select {
	case q.slot <- struct{}{}:
		return q.leave, nil
	default:
	}
	late := time.NewTimer(maxWait)
	defer late.Stop()
	select {
	case q.slot <- struct{}{}:
		return q.leave, nil
	case <-late.C:
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// leave lets the next writer continue.
func (q writerQueue) leave() { <-q.slot }
