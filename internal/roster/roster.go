package roster

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetkey"
)

// Config says where the roster is.
type Config struct {
	URL string       // sqlite:/var/lib/decamp/fleet.db, or postgres://user@host/database
	Log *slog.Logger // nil: silent

	// Insecure permits connections to PostgreSQL that leave this machine and do not verify the
	// server: another machine may read and change everything in the database.
	Insecure bool

	// Keys sign the plans and VMs that are added, and verify them (VerifyPlan, VerifyVM). nil:
	// nothing is signed, and nothing can be verified.
	Keys *fleetkey.Keys

	// Now takes the place of the database's clock, for tests. The same function in all
	// processes, or leases mean nothing.
	Now func() time.Time
}

// Roster is an open database. Its methods may be called concurrently.
type Roster struct {
	cfg    Config
	kind   *dialect
	file   string  // "" of a PostgreSQL
	db     *sql.DB // writes, durable once committed
	loose  *sql.DB // writes that may be lost with the power
	read   *sql.DB
	news   news
	counts counts

	// patience is how long one transaction takes at most, on a database that is alive.
	patience time.Duration

	// page is how many VMs Changes tells at a time.
	page int
}

// patience is the usual one.
const patience = 10 * time.Second

// Open opens the roster, and makes its tables where there are none. Several processes may open
// the same one.
func Open(ctx context.Context, cfg Config) (*Roster, error) {
	r := &Roster{cfg: cfg, patience: patience, page: page}
	if r.cfg.Log == nil {
		r.cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	if err := r.told(ctx, "open the fleet's database", r.prepare(ctx)); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Roster) open() error {
	r.news.init()
	scheme, _, _ := strings.Cut(r.cfg.URL, ":")
	switch scheme {
	case "sqlite":
		path, err := sqlitePath(r.cfg.URL)
		if err != nil {
			return err
		}
		return r.openSQLite(path)
	case "postgres", "postgresql":
		return r.openPostgres(r.cfg.URL)
	}
	return fault.New(fault.Invalid, "%q is no database that decamp knows", scheme).
		WithHint("as in sqlite:/var/lib/decamp/fleet.db or postgres://USER@HOST/DATABASE")
}

// Close lets go of the database. Leases stay until they are over.
func (r *Roster) Close() error {
	err := r.db.Close()
	if r.loose != r.db {
		err = errors.Join(err, r.loose.Close(), r.read.Close())
	}
	return err
}

// Now returns the time by the database's clock.
func (r *Roster) Now(ctx context.Context) (time.Time, error) {
	var now int64
	err := r.see(ctx, "ask for the time", func(ctx context.Context, t *sql.Tx) error {
		return t.QueryRowContext(ctx, `SELECT `+r.kind.now).Scan(&now)
	})
	if err != nil {
		return time.Time{}, err
	}
	return moment(r.clock(now)), nil
}

// clock is the database's, in microseconds, or the one that a test put in its place.
func (r *Roster) clock(database int64) int64 {
	if r.cfg.Now == nil {
		return database
	}
	return micros(r.cfg.Now())
}
