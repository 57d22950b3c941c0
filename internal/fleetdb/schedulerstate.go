package fleetdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"
)

// SchedulerState is the document in which the scheduler explains its decisions. The scheduler writes it only
// while a client requests it.
type SchedulerState struct{ db *database }

// Write replaces the document. l is the scheduler's lease: without it, Write returns ErrFenced. It uses no
// revision.
func (s *SchedulerState) Write(ctx context.Context, l Lease, doc json.RawMessage) error {
	return s.db.writeUnordered(ctx, "write the state of the scheduler", func(x *tx) error {
		if err := x.checkLease(l); err != nil {
			return err
		}
		_, err := x.exec(`UPDATE board SET at = $1, doc = $2 WHERE id = 1`, x.now, string(doc))
		return err
	})
}

// Read returns the last document, and when it was written by the database's clock. doc is empty and at is
// zero if it was never written.
func (s *SchedulerState) Read(ctx context.Context) (doc json.RawMessage, at time.Time, err error) {
	var micros int64
	var text string
	err = s.db.readTx(ctx, "read the state of the scheduler", func(ctx context.Context, t *sql.Tx) error {
		return t.QueryRowContext(ctx, `SELECT at, doc FROM board WHERE id = 1`).Scan(&micros, &text)
	})
	return json.RawMessage(text), fromMicros(micros), err
}

// Request makes the scheduler write the document for a while.
func (s *SchedulerState) Request(ctx context.Context) error {
	return s.db.writeUnordered(ctx, "request the state of the scheduler", func(x *tx) error {
		n, err := x.exec(`UPDATE board SET looked = $1 WHERE id = 1 AND looked < $2`, x.now, x.now-requestEvery.Microseconds())
		if err == nil && n == 0 {
			err = errSame
		}
		return err
	})
}

// requestEvery is the accuracy of Requested. Requests within it are not written again.
const requestEvery = time.Second

// Requested returns the time since the last Request.
func (s *SchedulerState) Requested(ctx context.Context) (time.Duration, error) {
	var looked, now int64
	err := s.db.readTx(ctx, "read the state of the scheduler", func(ctx context.Context, t *sql.Tx) error {
		return t.QueryRowContext(ctx, `SELECT looked, `+s.db.kind.now+` FROM board WHERE id = 1`).Scan(&looked, &now)
	})
	return time.Duration(s.db.effectiveTime(now)-looked) * time.Microsecond, err
}
