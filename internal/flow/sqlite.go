package flow

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"

	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // registers "sqlite"
)

// pragmas hold on every connection of the pool. The engine's own default is
// synchronous=NORMAL, which under WAL may lose the last checkpoints on power loss:
// a finished step would run again. FULL costs one fsync per step, and steps are few.
var pragmas = []string{
	"busy_timeout(5000)",
	"foreign_keys(ON)",
	"journal_mode(WAL)",
	"synchronous(FULL)",
}

// openSQLite opens the state file, readable by its owner only.
func openSQLite(path string) (*sql.DB, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	f.Close()
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{
		"_pragma": pragmas,
		"_txlock": {"immediate"}, // as the engine opens its own: readers that turn writers deadlock
	}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	db.SetMaxOpenConns(8)
	return db, nil
}
