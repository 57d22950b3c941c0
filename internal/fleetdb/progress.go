package fleetdb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/bottleneck"
)

// Progress is the last report of a worker on the transfer of a VM.
type Progress struct {
	Key
	Total  int64         `json:"total"`            // bytes
	Done   int64         `json:"done"`             // written or verified bytes, zeros included
	Read   int64         `json:"read"`             // read from the source since the worker took the VM; zeros that need no reading are not moved
	Rate   int64         `json:"rate"`             // recent Moved per second
	Reread int64         `json:"reread,omitempty"` // recent bytes per second that verify reads back from images
	Round  int           `json:"round,omitempty"`  // number of the round of a warm run; 0 for a cold run
	Outage time.Duration `json:"outage,omitempty"` // estimated outage of a cutover now; 0 for a cold run
	Dirty  int64         `json:"dirty,omitempty"`  // bytes per second that the guest changes
	At     time.Time     `json:"at"`               // time by the database's clock
	Silent bool          `json:"silent,omitempty"` // no report since At for silentAfter or longer; Rate and Reread are then 0

	Busy bottleneck.Busy `json:"busy,omitzero"` // recent load of the copy
}

// ProgressReports are the last reports of workers on the VMs that they execute. A report uses no
// revision.
type ProgressReports struct{ db *database }

// Report records the progress of a worker's VMs. It ignores VMs that another worker executes now, and
// VMs that have ended. read are the bytes that the worker read from sources since its last report, by
// plan.
func (s *ProgressReports) Report(ctx context.Context, worker Lease, all []Progress, read map[string]int64) error {
	if len(all)+len(read) == 0 {
		return nil
	}
	rows := make([][]any, len(all))
	for i, p := range all {
		rows[i] = []any{p.Plan, p.VM, toJSON(p)}
	}
	return s.db.writeUnordered(ctx, "report progress", func(x *tx) error {
		if err := errors.Join(x.relaxDurability(), x.checkLease(worker)); err != nil {
			return err
		}
		// SQLite joins in this order then: the other way round it reads all rows for each VM.
		_, err := x.exec(`INSERT INTO progress (plan, vm, at, doc)
			SELECT vms.plan, vms.vm, $2, value->>2 FROM `+s.db.kind.expandArray+` AS e CROSS JOIN vms
			WHERE vms.plan = value->>0 AND vms.vm = value->>1 AND vms.worker = $3 AND vms.state IN ('assigned', 'running') ON CONFLICT (plan, vm) DO UPDATE SET at = excluded.at, doc = excluded.doc`,
			toJSON(rows), x.now, worker.Owner)
		if err != nil {
			return err
		}
		return x.countRead(read)
	})
}

// silentAfter is the time after which the last report on a VM is outdated. While bytes move, reports
// come once per second.
const silentAfter = 10 * time.Second

// scanProgress returns a function that reads a report. A report that is too old at now is Silent: a
// dead worker does not reset its rate.
func scanProgress(now int64) func(scanner) (Progress, error) {
	return func(row scanner) (Progress, error) {
		var at int64
		var doc string
		if err := row.Scan(&at, &doc); err != nil {
			return Progress{}, err
		}
		p, err := parseJSON[Progress](doc)
		p.At = fromMicros(at)
		if p.Silent = now-at >= silentAfter.Microseconds(); p.Silent {
			p.Rate, p.Reread = 0, 0
		}
		return p, err
	}
}

// List returns the last reports on the VMs of a plan that have not ended; of all plans if plan is "".
func (s *ProgressReports) List(ctx context.Context, plan string) ([]Progress, error) {
	var all []Progress
	err := s.db.readTx(ctx, "read progress", func(ctx context.Context, t *sql.Tx) (err error) {
		now, err := s.db.readClock(ctx, t)
		if err != nil {
			return err
		}
		all, err = queryAll(ctx, t, scanProgress(now), `SELECT p.at, p.doc FROM progress AS p JOIN vms AS v ON v.plan = p.plan AND v.vm = p.vm
			WHERE (p.plan = $1 OR $1 = '') AND v.state NOT IN ('done', 'failed', 'canceled') ORDER BY p.plan, p.vm`, plan)
		return err
	})
	return all, err
}

// BusyOf returns the recent load of all transfers together, each weighted by its rate.
func BusyOf(all []Progress) bottleneck.Busy {
	var m bottleneck.Mean
	for _, p := range all {
		m.Add(p.Busy, p.Rate)
	}
	return m.Busy()
}
