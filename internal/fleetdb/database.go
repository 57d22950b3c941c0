package fleetdb

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetkey"
)

// database contains the open connections and runs transactions on them. All parts of a Database share it.
// It is safe for concurrent use.
type database struct {
	insecure bool             // Config.Insecure
	now      func() time.Time // Config.Now; nil uses the database's clock

	changes []schemaChange // changes of the schema that this version applies

	kind      *dialect  // differences of this database from the other kind
	file      string    // path of the SQLite file; empty for PostgreSQL
	durable   *sql.DB   // writes that are durable once they are committed
	loose     *sql.DB   // writes that a power loss may undo; the same as durable for PostgreSQL
	read      *sql.DB   // transactions that only read
	revisions revisions // newest revision that this process has seen

	// patience is the time limit of one transaction, its repetitions included.
	patience time.Duration
}

// patience is the default of database.patience.
const patience = 10 * time.Second

// openDatabase opens the connections for cfg.URL. It neither reads nor creates tables.
func openDatabase(cfg Config) (*database, error) {
	d := &database{insecure: cfg.Insecure, now: cfg.Now, changes: schemaChanges, revisions: newRevisions(), patience: patience}
	scheme, _, _ := strings.Cut(cfg.URL, ":")
	switch scheme {
	case "sqlite":
		path, err := sqlitePath(cfg.URL)
		if err != nil {
			return nil, err
		}
		return d, d.openSQLite(path)
	case "postgres", "postgresql":
		return d, d.openPostgres(cfg.URL)
	}
	return nil, fault.New(fault.Invalid, "%q is no database that decamp knows", scheme).
		WithHint("as in sqlite:/var/lib/decamp/fleet.db or postgres://USER@HOST/DATABASE")
}

// close closes all connections.
func (d *database) close() error {
	err := d.durable.Close()
	if d.loose != d.durable {
		err = errors.Join(err, d.loose.Close(), d.read.Close())
	}
	return err
}

// readClock returns the time by the database's clock, in microseconds.
func (d *database) readClock(ctx context.Context, t *sql.Tx) (int64, error) {
	var now int64
	err := t.QueryRowContext(ctx, `SELECT `+d.kind.now).Scan(&now)
	return d.effectiveTime(now), err
}

// effectiveTime returns the time by Config.Now, in microseconds, or database, which was read from the
// database's clock.
func (d *database) effectiveTime(database int64) int64 {
	if d.now == nil {
		return database
	}
	return toMicros(d.now())
}

// Config describes the database.
type Config struct {
	URL string // sqlite:/var/lib/decamp/fleet.db, or postgres://user@host/database

	// Insecure permits connections to PostgreSQL that leave this machine and do not verify the
	// server: another machine may read and change everything in the database.
	Insecure bool

	// Keys sign the plans and VMs that are added, and verify them (Plans.Verify, VMs.Verify). nil:
	// nothing is signed, and nothing can be verified.
	Keys *fleetkey.Keys

	// Now replaces the database's clock in tests. All processes need the same function:
	// leases compare its times.
	Now func() time.Time
}
