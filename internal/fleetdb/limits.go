package fleetdb

import (
	"context"
	"database/sql"
)

// Limit is what operators say of a resource of the scheduler's or of a budget:
// "host:esx1/vms" 20, "host:esx1/rate" 100000000 bytes a second.
type Limit struct {
	Name  string `json:"name"`
	Units int64  `json:"units"` // value; less than 0 removes the limit
	Rev   int64  `json:"rev"`
}

// Limits are the limits that operators set.
type Limits struct{ db *database }

// Set sets a limit. Less than 0 units removes it.
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
