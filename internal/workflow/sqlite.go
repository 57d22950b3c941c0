package workflow

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // registers the classification of SQLite's errors

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/sqlitedb"
)

// stateConns is the number of connections to the state file: so many runs may wait together for the
// durability of their records.
const stateConns = 16

// openSQLite opens the state file, readable by its owner only. Records are durable: with the engine's
// own default, a power loss may remove the last steps, which would run again.
func openSQLite(path string) (*sql.DB, error) {
	f, err := sqlitedb.At(path)
	if err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	db, err := f.Open(sqlitedb.Options{Conns: stateConns, Pragmas: []string{"foreign_keys(ON)"}, Durable: true})
	if err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	return db, nil
}

// stateFormat is the format of the state file, in SQLite's user_version; 0 is from before the first release.
// A change that earlier versions cannot read, also one of the engine's tables, increases it. A shared record
// has no format: the schema version of the fleet database, which is opened first, includes it.
const stateFormat = 1

// checkFormat returns fault.Unsupported for a state file of a later format, before anything is changed.
func checkFormat(ctx context.Context, db *sql.DB) error {
	var format int
	if err := db.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&format); err != nil {
		return err
	}
	if format > stateFormat {
		return fault.New(fault.Unsupported, "the state file has format %d, and this decamp supports format %d", format, stateFormat).
			WithHint("install the version of decamp that wrote it, or a newer one (docs/upgrading.md)")
	}
	return nil
}

// writeFormat records the format in a state file without it.
func writeFormat(ctx context.Context, db *sql.DB) error {
	var format int
	if err := db.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&format); err != nil || format == stateFormat {
		return err
	}
	_, err := db.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, stateFormat))
	return err
}
