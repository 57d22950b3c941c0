package workflow

import (
	"database/sql"
	"fmt"

	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // registers the classification of SQLite's errors

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
