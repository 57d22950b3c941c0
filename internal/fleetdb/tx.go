package fleetdb

import (
	"context"
	"database/sql"
	"time"
)

// tries is the number of attempts at a transaction that conflicts with others, or whose connection is
// broken.
const tries = 3

// tx is a write transaction. It locks the one row of meta, so write transactions run one at a time: its
// reads stay valid until it ends, and a reader of revision n sees all earlier revisions. PostgreSQL
// alone would assign numbers that commit in another order.
type tx struct {
	*sql.Tx
	ctx  context.Context // context of the transaction, with its time limit
	kind *dialect        // SQL of the database
	rev  int64           // revision of the changes; the last one if there are several
	now  int64           // time by the database's clock, in microseconds
}

// write runs fn in a durable transaction with revs new revisions. If fn returns errSame, nothing is
// written. what describes the transaction in errors.
func (d *database) write(ctx context.Context, what string, revs int, fn func(*tx) error) error {
	return d.writeTo(ctx, d.durable, what, revs, fn)
}

// writeLoose is write for data that a power loss of all processes may remove: it does not wait for the
// disk. For PostgreSQL it is the same as write.
func (d *database) writeLoose(ctx context.Context, what string, revs int, fn func(*tx) error) error {
	return d.writeTo(ctx, d.loose, what, revs, fn)
}

// writeTo is write on the connections db. It announces the new revision after the commit.
func (d *database) writeTo(ctx context.Context, db *sql.DB, what string, revs int, fn func(*tx) error) error {
	var rev int64
	err := d.runTx(ctx, db, nil, func(ctx context.Context, t *sql.Tx) error {
		x := &tx{Tx: t, ctx: ctx, kind: d.kind}
		take := `UPDATE meta SET rev = rev + $1 WHERE id = 1 RETURNING rev, version, oldest, ` + d.kind.now
		var version, oldest int
		if err := t.QueryRowContext(ctx, take, revs).Scan(&x.rev, &version, &oldest, &x.now); err != nil {
			return err
		}
		if err := d.compareVersion(version, oldest); err != nil { // another process upgraded the database
			return err
		}
		rev, x.now = x.rev, d.effectiveTime(x.now)
		return fn(x)
	})
	if err == nil && revs > 0 {
		d.revisions.announce(rev)
	}
	return d.toFault(ctx, what, err)
}

// writeUnordered runs fn in a transaction that uses no revision and may run beside other writers. With
// SQLite, a power loss may remove it.
func (d *database) writeUnordered(ctx context.Context, what string, fn func(*tx) error) error {
	return d.toFault(ctx, what, d.runTx(ctx, d.loose, nil, func(ctx context.Context, t *sql.Tx) error {
		x := &tx{Tx: t, ctx: ctx, kind: d.kind}
		var version, oldest int
		if err := x.scanRow(`SELECT version, oldest, `+d.kind.now+` FROM meta WHERE id = 1`, nil, &version, &oldest, &x.now); err != nil {
			return err
		}
		if err := d.compareVersion(version, oldest); err != nil { // another process upgraded the database
			return err
		}
		x.now = d.effectiveTime(x.now)
		return fn(x)
	}))
}

// readTx runs fn in a transaction that reads one consistent state.
func (d *database) readTx(ctx context.Context, what string, fn func(context.Context, *sql.Tx) error) error {
	return d.toFault(ctx, what, d.runTx(ctx, d.read, d.kind.reading, fn))
}

// runTx runs fn in a transaction, and repeats it if it failed before Commit for a reason that passes.
// fn may therefore be called several times.
func (d *database) runTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) error {
	return d.runTxWithin(ctx, d.patience, db, opts, fn)
}

// runTxWithin is runTx with another time limit than d.patience.
func (d *database) runTxWithin(ctx context.Context, limit time.Duration, db *sql.DB, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for try := 1; ; try++ {
		committing, err := tryTx(ctx, db, opts, fn)
		if err == nil || committing || try == tries || ctx.Err() != nil {
			return err
		}
		if f, ok := d.classifyError(err); !ok || !f.again {
			return err
		}
	}
}

// tryTx runs fn in one transaction. It reports whether Commit was called: after that, the outcome is
// unknown if err is not nil.
func tryTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) (committing bool, err error) {
	t, err := db.BeginTx(ctx, opts)
	if err != nil {
		return false, err
	}
	if err := fn(ctx, t); err != nil {
		_ = t.Rollback() // otherwise it ends with its connection
		return false, err
	}
	return true, t.Commit()
}

// exec executes a statement, and returns the number of changed rows.
func (x *tx) exec(query string, args ...any) (int64, error) {
	done, err := x.ExecContext(x.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return done.RowsAffected()
}

// relaxDurability permits PostgreSQL to lose the transaction in a power cut. For SQLite, which has a
// separate connection for this, it does nothing.
func (x *tx) relaxDurability() error {
	if x.kind.relaxDurability == "" {
		return nil
	}
	_, err := x.exec(x.kind.relaxDurability)
	return err
}

// scanRow scans the one row that query selects into the given variables. It returns sql.ErrNoRows if
// none exists.
func (x *tx) scanRow(query string, args []any, into ...any) error {
	return x.QueryRowContext(x.ctx, query, args...).Scan(into...)
}

// queryAll returns all rows of a query, read by scan. The slice is not nil.
func queryAll[T any](ctx context.Context, t *sql.Tx, scan func(scanner) (T, error), text string, args ...any) ([]T, error) {
	rows, err := t.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := []T{}
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// scanner is a row of sql.Row or sql.Rows.
type scanner interface{ Scan(...any) error }
