package fleetdb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A schemaChange leads from one version of the schema to the next.
type schemaChange struct {
	statements []string // statements of both databases
	// compatible reports whether programs of the version before can use the changed database beside newer
	// ones, as in a rolling upgrade. A new column with a default is compatible.
	compatible bool
}

// schemaChanges are the schema changes, oldest first: a database of version n has the first n of them.
// Released entries are never edited; new ones are appended. Release 0.1.0 has version 4. Both databases use
// the same text. Times are microseconds since 1970 by the database's clock, and 0 is never. Lists, and
// columns that no query selects by, are JSON.
//
// In vms, asks is VM.Requested, holds is VM.Granted, ord is VM.Command and waits is VM.WaitReason. The table
// board has the document of SchedulerState, and looked is the time of the last request for it. Columns are not
// renamed: a process of an earlier version that has the database open would fail.
var schemaChanges = []schemaChange{{statements: []string{
	`CREATE TABLE plans (
		name    TEXT   PRIMARY KEY,
		text    TEXT   NOT NULL,
		folder  TEXT   NOT NULL,
		author  TEXT   NOT NULL,
		created BIGINT NOT NULL,
		listed  BIGINT NOT NULL DEFAULT 0,
		ord     TEXT   NOT NULL DEFAULT '',
		state   TEXT   NOT NULL,
		failure TEXT   NOT NULL DEFAULT '',
		ended   BIGINT NOT NULL DEFAULT 0,
		rev     BIGINT NOT NULL)`,

	// Plans that followers must remove.
	`CREATE TABLE dropped (name TEXT PRIMARY KEY, rev BIGINT NOT NULL)`,

	`CREATE TABLE vms (
		plan       TEXT    NOT NULL,
		vm         TEXT    NOT NULL,
		seq        BIGINT  NOT NULL,
		warm       BOOLEAN NOT NULL,
		listing    TEXT    NOT NULL,
		spec       TEXT    NOT NULL,
		state      TEXT    NOT NULL,
		step       TEXT    NOT NULL DEFAULT '',
		waits      TEXT    NOT NULL DEFAULT '',
		worker     TEXT    NOT NULL DEFAULT '',
		storage    TEXT    NOT NULL DEFAULT '',
		epoch      BIGINT  NOT NULL DEFAULT 0,
		asks       TEXT    NOT NULL DEFAULT '',
		holds      BOOLEAN NOT NULL DEFAULT FALSE,
		since      BIGINT  NOT NULL DEFAULT 0,
		expected   BIGINT  NOT NULL DEFAULT 0,
		ord        TEXT    NOT NULL DEFAULT '',
		attempts   BIGINT  NOT NULL DEFAULT 0,
		not_before BIGINT  NOT NULL DEFAULT 0,
		began      BIGINT  NOT NULL DEFAULT 0,
		ended      BIGINT  NOT NULL DEFAULT 0,
		failure    TEXT    NOT NULL DEFAULT '',
		rev        BIGINT  NOT NULL,
		PRIMARY KEY (plan, vm))`,
	`CREATE INDEX vms_rev ON vms (rev)`,
	`CREATE INDEX vms_state ON vms (state, plan)`,
	`CREATE INDEX vms_seq ON vms (plan, seq)`,

	`CREATE TABLE leases (
		name  TEXT   PRIMARY KEY,
		owner TEXT   NOT NULL,
		epoch BIGINT NOT NULL,
		until BIGINT NOT NULL)`,
	`CREATE TABLE workers (
		name    TEXT    PRIMARY KEY,
		version TEXT    NOT NULL,
		offers  TEXT    NOT NULL,
		vms     BIGINT  NOT NULL,
		drains  BOOLEAN NOT NULL,
		rev     BIGINT  NOT NULL)`,
	`CREATE TABLE limits (name TEXT PRIMARY KEY, units BIGINT NOT NULL, rev BIGINT NOT NULL)`,
	`CREATE TABLE progress (
		plan TEXT   NOT NULL,
		vm   TEXT   NOT NULL,
		at   BIGINT NOT NULL,
		doc  TEXT   NOT NULL,
		PRIMARY KEY (plan, vm))`,
	`CREATE TABLE audit (id BIGINT PRIMARY KEY, at BIGINT NOT NULL, doc TEXT NOT NULL)`,
	`CREATE TABLE records (
		kind TEXT NOT NULL,
		id   TEXT NOT NULL,
		doc  TEXT NOT NULL,
		PRIMARY KEY (kind, id))`,
	`CREATE TABLE board (id BIGINT PRIMARY KEY, at BIGINT NOT NULL, doc TEXT NOT NULL, looked BIGINT NOT NULL)`,
	`INSERT INTO board VALUES (1, 0, '', 0)`,
}}, {statements: []string{
	`ALTER TABLE vms ADD COLUMN rehearse TEXT NOT NULL DEFAULT ''`,
}}, {statements: []string{
	// Existing rows have no signature, and are refused until they are submitted again.
	`ALTER TABLE plans ADD COLUMN role TEXT NOT NULL DEFAULT ''`,
	`ALTER TABLE plans ADD COLUMN signature TEXT NOT NULL DEFAULT ''`,
	`ALTER TABLE vms ADD COLUMN signature TEXT NOT NULL DEFAULT ''`,
}}, {statements: append([]string{
	// The oldest version whose programs can use the database.
	`ALTER TABLE meta ADD COLUMN oldest BIGINT NOT NULL DEFAULT 4`,
	// Sums that never decrease: see Counters.
	`CREATE TABLE counters (name TEXT NOT NULL, label TEXT NOT NULL, value DOUBLE PRECISION NOT NULL, PRIMARY KEY (name, label))`,
}, notificationTables...)}}

// oldestCompatible returns the oldest version whose programs can use a database with all changes.
func oldestCompatible(changes []schemaChange) int {
	for n := len(changes); n > 0; n-- {
		if !changes[n-1].compatible {
			return n
		}
	}
	return 0
}

// meta creates the table meta. Its one row is locked first by every transaction that writes: see tx.
var meta = []string{
	`CREATE TABLE meta (id BIGINT PRIMARY KEY, version BIGINT NOT NULL, rev BIGINT NOT NULL, entry BIGINT NOT NULL)`,
	`INSERT INTO meta VALUES (1, 0, 0, 0)`,
}

// SchemaVersion returns the version of the schema that this decamp creates, and to which it upgrades.
func SchemaVersion() int { return len(schemaChanges) }

// upgradePatience is the time limit of the transaction that creates or upgrades the schema. Changing a large
// table takes longer than other transactions.
const upgradePatience = 10 * time.Minute

// prepareSchema brings the tables to this version. Several processes may call it at once: the first one
// changes the tables. The others wait for it; with SQLite, only for its busy_timeout in each attempt.
//
// A short transaction comes first, so that a database that does not respond is an error after d.patience.
func (d *database) prepareSchema(ctx context.Context) error {
	if err := d.runTx(ctx, d.read, d.kind.reading, func(context.Context, *sql.Tx) error { return nil }); err != nil {
		return err
	}
	return d.runTxWithin(ctx, upgradePatience, d.durable, nil, func(ctx context.Context, t *sql.Tx) error {
		found, err := d.kind.lockAndFind(ctx, t)
		if err != nil {
			return err
		}
		if !found {
			if err := execAll(ctx, t, meta); err != nil {
				return err
			}
		}
		return d.upgradeSchema(ctx, t)
	})
}

// upgradeSchema applies the changes that the database lacks. It does not change a database of a later
// version, and returns fault.Unsupported if this version is not compatible with it.
func (d *database) upgradeSchema(ctx context.Context, t *sql.Tx) error {
	var version int
	if err := t.QueryRowContext(ctx, `SELECT version FROM meta WHERE id = 1`).Scan(&version); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return foreignError("its table meta is empty")
		}
		return err
	}
	if version > len(d.changes) {
		return d.checkOldest(ctx, t, version)
	}
	if version == len(d.changes) {
		return nil
	}
	for _, change := range d.changes[version:] {
		if err := execAll(ctx, t, change.statements); err != nil {
			return err
		}
	}
	_, err := t.ExecContext(ctx, `UPDATE meta SET version = $1, oldest = $2 WHERE id = 1`, len(d.changes), oldestCompatible(d.changes))
	return err
}

// checkOldest returns fault.Unsupported if this version cannot use the database, which is of a later version.
func (d *database) checkOldest(ctx context.Context, t *sql.Tx, version int) error {
	var oldest int
	if err := t.QueryRowContext(ctx, `SELECT oldest FROM meta WHERE id = 1`).Scan(&oldest); err != nil {
		return err
	}
	return d.compareVersion(version, oldest)
}

// compareVersion returns fault.Unsupported if programs of the database's oldest compatible version are newer
// than this one.
func (d *database) compareVersion(version, oldest int) error {
	if oldest <= len(d.changes) {
		return nil
	}
	return fault.New(fault.Unsupported, "the fleet database has schema version %d, and this decamp supports version %d", version, len(d.changes)).
		WithHint("install the version of decamp that the other servers and workers have, or a newer one (docs/upgrading.md)")
}

// execAll executes statements in order, until one fails.
func execAll(ctx context.Context, t *sql.Tx, statements []string) error {
	for _, s := range statements {
		if _, err := t.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
