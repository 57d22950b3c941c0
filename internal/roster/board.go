package roster

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"
)

// PutBoard replaces what the scheduler shows: why each VM waits. Nobody else reads it back, so
// it is no revision.
func (r *Roster) PutBoard(ctx context.Context, l Lease, doc json.RawMessage) error {
	return r.aside(ctx, "write the board", func(x *tx) error {
		if err := x.fence(l); err != nil {
			return err
		}
		_, err := x.exec(`UPDATE board SET at = $1, doc = $2 WHERE id = 1`, x.now, string(doc))
		return err
	})
}

// Board returns what the scheduler showed last, and when: by the database's clock.
func (r *Roster) Board(ctx context.Context) (doc json.RawMessage, at time.Time, err error) {
	var micros int64
	var text string
	err = r.see(ctx, "read the board", func(ctx context.Context, t *sql.Tx) error {
		return t.QueryRowContext(ctx, `SELECT at, doc FROM board WHERE id = 1`).Scan(&micros, &text)
	})
	return json.RawMessage(text), moment(micros), err
}

// Look says that somebody looks at the board, so that it is written.
func (r *Roster) Look(ctx context.Context) error {
	return r.aside(ctx, "look at the board", func(x *tx) error {
		n, err := x.exec(`UPDATE board SET looked = $1 WHERE id = 1 AND looked < $2`, x.now, x.now-lookEvery.Microseconds())
		if err == nil && n == 0 {
			err = errSame
		}
		return err
	})
}

// lookEvery is how exact it is known when somebody looked.
const lookEvery = time.Second

// Looked returns how long ago somebody looked at the board.
func (r *Roster) Looked(ctx context.Context) (time.Duration, error) {
	var looked, now int64
	err := r.see(ctx, "read the board", func(ctx context.Context, t *sql.Tx) error {
		return t.QueryRowContext(ctx, `SELECT looked, `+r.kind.now+` FROM board WHERE id = 1`).Scan(&looked, &now)
	})
	return time.Duration(r.clock(now)-looked) * time.Microsecond, err
}
