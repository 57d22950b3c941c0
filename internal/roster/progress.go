package roster

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/bottleneck"
)

// Report notes how far a worker's VMs are: it is no revision. Those that are another's by now,
// or have ended, are left out.
func (r *Roster) Report(ctx context.Context, worker Lease, all []Progress) error {
	if len(all) == 0 {
		return nil
	}
	rows := make([][]any, len(all))
	for i, p := range all {
		rows[i] = []any{p.Plan, p.VM, text(p)}
	}
	return r.aside(ctx, "report progress", func(x *tx) error {
		if err := errors.Join(x.relax(), x.fence(worker)); err != nil {
			return err
		}
		// SQLite joins in this order then: the other way round it reads all rows for each VM.
		_, err := x.exec(`INSERT INTO progress (plan, vm, at, doc)
			SELECT vms.plan, vms.vm, $2, value->>2 FROM `+r.kind.each+` AS e CROSS JOIN vms
			WHERE vms.plan = value->>0 AND vms.vm = value->>1 AND vms.worker = $3 AND vms.state IN ('assigned', 'running') ON CONFLICT (plan, vm) DO UPDATE SET at = excluded.at, doc = excluded.doc`,
			text(rows), x.now, worker.Owner)
		return err
	})
}

// silentAfter is how long a worker may tell nothing of a VM before what it told last says nothing
// of now. While bytes move it tells once a second.
const silentAfter = 10 * time.Second

// scanProgress reads what was told, at a moment: who is dead does not say that nothing moves.
func scanProgress(now int64) func(scanner) (Progress, error) {
	return func(row scanner) (Progress, error) {
		var at int64
		var doc string
		if err := row.Scan(&at, &doc); err != nil {
			return Progress{}, err
		}
		p, err := parse[Progress](doc)
		p.At = moment(at)
		if p.Silent = now-at >= silentAfter.Microseconds(); p.Silent {
			p.Rate, p.Reread = 0, 0
		}
		return p, err
	}
}

// Progress returns what was reported last of a plan's VMs that are not over; of all plans', if
// plan is "".
func (r *Roster) Progress(ctx context.Context, plan string) ([]Progress, error) {
	var all []Progress
	err := r.see(ctx, "read progress", func(ctx context.Context, t *sql.Tx) (err error) {
		var now int64
		if err := t.QueryRowContext(ctx, `SELECT `+r.kind.now).Scan(&now); err != nil {
			return err
		}
		all, err = query(ctx, t, scanProgress(r.clock(now)), `SELECT p.at, p.doc FROM progress AS p JOIN vms AS v ON v.plan = p.plan AND v.vm = p.vm
			WHERE (p.plan = $1 OR $1 = '') AND v.state NOT IN ('done', 'failed', 'canceled') ORDER BY p.plan, p.vm`, plan)
		return err
	})
	return all, err
}

// BusyOf is what transfers were busy with lately, each counted by its rate.
func BusyOf(all []Progress) bottleneck.Busy {
	var m bottleneck.Mean
	for _, p := range all {
		m.Add(p.Busy, p.Rate)
	}
	return m.Busy()
}
