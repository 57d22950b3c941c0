package workflow

import (
	"database/sql"
	"fmt"

	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // registers the classification of SQLite's errors

	"github.com/decamp/decamp/internal/sqlitedb"
)

// connections to the state file: the number of runs that may wait together for the durability of their
// records.
const stateConns = 16

// openSQLite opens the state file, readable by its owner only. What is recorded is durable: the
// engine's own default may lose the last steps on power loss, which would run again.
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
