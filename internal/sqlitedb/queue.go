package sqlitedb

import (
	"context"
	"time"
)

// patience is the maximum wait in line before SQLite is called anyway: the first in line may itself
// wait for a place. The value is SQLite's busy_timeout.
const maxWait = 5 * time.Second

// line is where writers of this process wait, first come first served: the file has one at a
// time. Those of other processes are not in it.
type writerQueue struct{ slot chan struct{} }

func newWriterQueue() writerQueue { return writerQueue{make(chan struct{}, 1)} }

// enter returns when it is the caller's turn, until leave.
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

func (q writerQueue) leave() { <-q.slot }
