package fleetdb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fleetkey"
)

// Database is an open fleet database, divided by purpose. Pass on only the part that is needed. All parts
// share the connections, and their methods are safe for concurrent use until Close.
type Database struct {
	Plans          *Plans           // submitted plans
	VMs            *VMs             // the VMs of all plans, and orders to them
	Claims         *Claims          // writes of workers about their VMs
	Scheduling     *Scheduling      // decisions of the scheduler
	Workers        *Workers         // the processes that drive VMs
	Leases         *Leases          // rights that one process at a time has
	Limits         *Limits          // capacities and rates that operators set
	Progress       *ProgressReports // how far transfers are
	Counters       *Counters        // sums over all VMs, removed ones included
	Rehearsals     *Rehearsals      // boots of warm VMs before their cutover
	Records        *Records         // small documents of all other kinds
	SchedulerState *SchedulerState  // state of the scheduler for display
	Audit          *AuditTrail      // changes by users
	Notifications  *Notifications   // messages to receivers
	Feed           *Feed            // changes since a revision

	db   *database      // connections of all parts
	keys *fleetkey.Keys // Config.Keys
}

// Open opens the fleet database, and creates its tables if they do not exist. Several processes
// may open the same one.
func Open(ctx context.Context, cfg Config) (*Database, error) {
	d, err := openDatabase(cfg)
	if err != nil {
		return nil, err
	}
	if err := d.toFault(ctx, "open the fleet's database", d.prepareSchema(ctx)); err != nil {
		return nil, errors.Join(err, d.close())
	}
	signer := signer{cfg.Keys}
	return &Database{
		Plans: &Plans{db: d, signer: signer}, VMs: &VMs{d, signer}, Claims: &Claims{d}, Scheduling: &Scheduling{d},
		Workers: &Workers{d}, Leases: &Leases{d}, Limits: &Limits{d}, Progress: &ProgressReports{d}, Counters: &Counters{d},
		Rehearsals: &Rehearsals{d}, Records: &Records{d, signer}, SchedulerState: &SchedulerState{d}, Audit: &AuditTrail{d},
		Notifications: &Notifications{d},
		Feed:          &Feed{d, pageSize}, db: d, keys: cfg.Keys,
	}, nil
}

// Close closes the connections. Leases last until they expire.
func (r *Database) Close() error { return r.db.close() }

// Keys returns the keys that the database was opened with; nil if it was opened without.
func (r *Database) Keys() *fleetkey.Keys { return r.keys }

// Now returns the time by the database's clock.
func (r *Database) Now(ctx context.Context) (time.Time, error) {
	var now int64
	err := r.db.readTx(ctx, "read the time", func(ctx context.Context, t *sql.Tx) (err error) {
		now, err = r.db.readClock(ctx, t)
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	return fromMicros(now), nil
}
