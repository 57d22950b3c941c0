package fleetdb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Worker is a process that migrates VMs of plans.
type Worker struct {
	Name    string            `json:"name"`             // name of the worker, the same after a restart; its VMs are assigned by it
	Version string            `json:"version"`          // version of decamp
	Offers  map[string]string `json:"offers"`           // folder -> id of the storage behind it. The same id on two workers is shared storage
	VMs     int               `json:"vms"`              // maximum number of concurrent VMs
	Drains  bool              `json:"drains,omitempty"` // gets no more VMs
	Epoch   int64             `json:"epoch"`            // epoch of this process: a second one with the same name replaces the first
	Until   time.Time         `json:"until"`            // end of its lease, by the database's clock; zero if it has left
	Alive   bool              `json:"alive"`            // Until has not passed, by the database's clock
	Rev     int64             `json:"rev"`              // revision of the last change
}

// Workers are the processes that migrate VMs, including those that have ended. A running worker has a
// lease, which it renews with Leases.Renew.
type Workers struct{ db *database }

// workerLease returns the name of a worker's lease.
func workerLease(name string) string { return "worker:" + name }

// Join makes this process the worker of that name. An earlier process of that name is fenced, also from
// its VMs. The new process gets them at once, Assigned with a new epoch, with their slots; those that
// waited for the worker are queued.
func (s *Workers) Join(ctx context.Context, w Worker, ttl time.Duration) (Lease, error) {
	l := Lease{Name: workerLease(w.Name), Owner: w.Name, ValidUntil: time.Now().Add(ttl)}
	err := s.db.write(ctx, "join as "+w.Name, 1, func(x *tx) error {
		had, _, err := x.lockLease(l.Name)
		if err != nil {
			return err
		}
		l.Epoch = had.Epoch + 1
		return errors.Join(x.setLease(l, ttl), x.setWorker(w), x.inheritVMs(w.Name))
	})
	if err != nil {
		return Lease{}, err
	}
	return l, nil
}

// setWorker writes the row of a worker.
func (x *tx) setWorker(w Worker) error {
	_, err := x.exec(`INSERT INTO workers (name, version, offers, vms, drains, rev) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (name) DO UPDATE SET version = excluded.version, offers = excluded.offers, vms = excluded.vms, drains = excluded.drains, rev = excluded.rev`,
		w.Name, w.Version, toJSON(w.Offers), w.VMs, w.Drains, x.rev)
	return err
}

// inheritVMs assigns the VMs of an earlier process of the same name to the new one, with a new epoch.
// Stranded VMs are queued.
func (x *tx) inheritVMs(worker string) error {
	_, err := x.exec(`UPDATE vms SET state = 'assigned', epoch = epoch + 1, asks = '', waits = '', rev = $2
		WHERE worker = $1 AND state IN ('assigned', 'running')`, worker, x.rev)
	if err != nil {
		return err
	}
	_, err = x.exec(`UPDATE vms SET state = 'queued', asks = CASE WHEN began > 0 THEN 'again' ELSE 'first' END, waits = '', rev = $2
		WHERE worker = $1 AND state = 'stranded'`, worker, x.rev)
	return err
}

// Leave ends a worker's lease at once. Its row stays as a record; its VMs are treated as those of a
// dead worker.
func (s *Workers) Leave(ctx context.Context, l Lease) error {
	return s.db.write(ctx, "leave "+l.Name, 1, func(x *tx) error {
		if err := x.freeLease(l); err != nil {
			return err
		}
		_, err := x.exec(`UPDATE workers SET rev = $1 WHERE name = $2`, x.rev, l.Owner)
		return err
	})
}

// workerColumns are the columns that scanWorker reads.
const workerColumns = `w.name, w.version, w.offers, w.vms, w.drains, w.rev, l.epoch, l.until`

// scanWorker returns a function that reads a worker. now is the database's time in microseconds; it
// determines Alive.
func scanWorker(now int64) func(scanner) (Worker, error) {
	return func(row scanner) (Worker, error) {
		var w Worker
		var offers string
		var until int64
		err := row.Scan(&w.Name, &w.Version, &offers, &w.VMs, &w.Drains, &w.Rev, &w.Epoch, &until)
		if err != nil {
			return Worker{}, err
		}
		w.Until, w.Alive = fromMicros(until), until > now
		w.Offers, err = parseJSON[map[string]string](offers)
		return w, err
	}
}

// workersSince returns the workers that changed after a revision, by name; all workers for -1.
func workersSince(ctx context.Context, t *sql.Tx, now, rev int64) ([]Worker, error) {
	return queryAll(ctx, t, scanWorker(now), `SELECT `+workerColumns+` FROM workers AS w JOIN leases AS l ON l.name = 'worker:' || w.name
		WHERE w.rev > $1 ORDER BY w.name`, rev)
}

// List returns all workers that ever joined, by name. Workers that have left have no Until.
func (s *Workers) List(ctx context.Context) ([]Worker, error) {
	var all []Worker
	err := s.db.readTx(ctx, "list workers", func(ctx context.Context, t *sql.Tx) (err error) {
		now, err := s.db.readClock(ctx, t)
		if err != nil {
			return err
		}
		all, err = workersSince(ctx, t, now, -1)
		return err
	})
	return all, err
}

// Drain stops or resumes assignments to a worker. A worker that joins sets this itself.
func (s *Workers) Drain(ctx context.Context, name string, on bool) error {
	return s.db.write(ctx, "drain "+name, 1, func(x *tx) error {
		n, err := x.exec(`UPDATE workers SET drains = $1, rev = $2 WHERE name = $3`, on, x.rev, name)
		if err == nil && n == 0 {
			err = fault.New(fault.NotFound, "worker %s does not exist", name).WithHint("list the workers with the API of a server: curl -H \"Authorization: Bearer $TOKEN\" https://SERVER:8470/v1/workers")
		}
		return err
	})
}
