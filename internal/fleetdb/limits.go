package fleetdb

import (
	"context"
	"database/sql"
)

// Limit is a capacity of a scheduler resource, or the rate of a budget, that operators set:
// "host:esx1/vms" 20, "host:esx1/rate" 100000000 bytes per second.
type Limit struct {
	Name  string `json:"name"`  // resource or budget
	Units int64  `json:"units"` // number of slots, or bytes per second; a negative value removes the limit
	Rev   int64  `json:"rev"`   // revision of the last change
}

// Limits are the limits that operators set.
type Limits struct{ db *database }

// Set sets a limit. Negative units remove it.
func (s *Limits) Set(ctx context.Context, name string, units int64) error {
	return s.db.write(ctx, "set limit "+name, 1, func(x *tx) error {
		n, err := x.exec(`INSERT INTO limits (name, units, rev) VALUES ($1, $2, $3)
			ON CONFLICT (name) DO UPDATE SET units = excluded.units, rev = excluded.rev WHERE limits.units <> excluded.units`, name, units, x.rev)
		if err == nil && n == 0 {
			err = errSame
		}
		return err
	})
}

// scanLimit reads a limit.
func scanLimit(row scanner) (l Limit, err error) { return l, row.Scan(&l.Name, &l.Units, &l.Rev) }

// List returns the limits that are set, by name.
func (s *Limits) List(ctx context.Context) ([]Limit, error) {
	var all []Limit
	err := s.db.readTx(ctx, "list limits", func(ctx context.Context, t *sql.Tx) (err error) {
		all, err = queryAll(ctx, t, scanLimit, `SELECT name, units, rev FROM limits WHERE units >= 0 ORDER BY name`)
		return err
	})
	return all, err
}
