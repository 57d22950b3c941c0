package sqlitedb

import (
	"context"
	"time"
)

// patience is the maximum wait in line before SQLite is called anyway: the first in line may itself
// wait for a place. The value is SQLite's busy_timeout.
const patience = 5 * time.Second

// line is where writers of this process wait, first come first served: the file has one at a
// time. Those of other processes are not in it.
type line struct{ place chan struct{} }

func newLine() line { return line{make(chan struct{}, 1)} }

// enter returns when it is the caller's turn, until leave.
func (l line) enter(ctx context.Context) (leave func(), err error) {
	select {
	case l.place <- struct{}{}:
		return l.leave, nil
	default:
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case l.place <- struct{}{}:
		return l.leave, nil
	case <-late.C:
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l line) leave() { <-l.place }
