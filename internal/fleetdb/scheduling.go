package fleetdb

import (
	"context"
	"time"
)

// Scheduling are the decisions of the scheduler. Each write checks the scheduler's lease in the same
// transaction.
type Scheduling struct{ db *database }

// Granted is a decision of the scheduler: a queued VM gets a worker, or a VM with a request gets its
// transfer slots.
type Granted struct {
	Key
	Worker   string        // worker that executes the VM
	Expected time.Duration // expected duration of the transfer; 0 if unknown
}

// Grant records decisions, and returns the VMs that got their grants. VMs that changed meanwhile, or
// whose worker has ended, are left out. A queued VM becomes Assigned, with a new epoch; a VM with a
// request gets its slots. l is the scheduler's lease.
func (s *Scheduling) Grant(ctx context.Context, l Lease, given []Granted) ([]VM, error) {
	if len(given) == 0 {
		return nil, nil
	}
	rows := make([][]any, len(given))
	for i, g := range given {
		rows[i] = []any{g.Plan, g.VM, g.Worker, toNanos(g.Expected)}
	}
	var granted []VM
	err := s.db.write(ctx, "grant", 1, func(x *tx) (err error) {
		if err := x.checkLease(l); err != nil {
			return err
		}
		if err := x.updateGranted(toJSON(rows)); err != nil {
			return err
		}
		granted, err = queryAll(x.ctx, x.Tx, scanVM, `SELECT `+vmColumns+` FROM vms WHERE rev = $1 ORDER BY plan, seq`, x.rev)
		if err == nil && len(granted) == 0 {
			err = errSame
		}
		return err
	})
	return granted, err
}

// updateGranted updates the VMs of rows, a JSON array of [plan, vm, worker, expected]. Paused VMs, and
// queued VMs of draining workers, are left out.
func (x *tx) updateGranted(rows string) error {
	given := ` FROM (SELECT value->>0 AS gplan, value->>1 AS gvm, value->>2 AS gworker, CAST(value->>3 AS BIGINT) AS gexpected FROM ` + x.kind.expandArray + ` AS e) AS g
		WHERE vms.plan = gplan AND vms.vm = gvm AND vms.ord <> 'pause'
			AND (vms.ord <> '' OR NOT EXISTS (SELECT 1 FROM plans WHERE plans.name = gplan AND plans.ord = 'pause'))
			AND EXISTS (SELECT 1 FROM leases WHERE leases.name = 'worker:' || gworker AND until > $2) `
	hold := ` holds = TRUE, asks = '', since = $2, expected = gexpected, waits = '', rev = $3 `
	idle := ` AND NOT EXISTS (SELECT 1 FROM workers WHERE workers.name = gworker AND drains) `
	_, err := x.exec(`UPDATE vms SET state = 'assigned', worker = gworker, epoch = epoch + 1, `+hold+given+idle+` AND state = 'queued'`, rows, x.now, x.rev)
	if err != nil {
		return err
	}
	_, err = x.exec(`UPDATE vms SET `+hold+given+` AND state IN ('assigned', 'running') AND worker = gworker AND asks <> '' AND rev <> $3`, rows, x.now, x.rev)
	return err
}

// Requeue queues VMs of a dead worker for another one. VMs whose worker is alive again are left out,
// except stranded ones.
func (s *Scheduling) Requeue(ctx context.Context, l Lease, keys []Key, why string) error {
	return s.releaseVMs(ctx, l, keys, why, "requeue",
		`state = 'queued', asks = CASE WHEN began > 0 THEN 'again' ELSE 'first' END`,
		` AND (state = 'stranded' OR state IN ('assigned', 'running') AND `+deadWorkerCondition+`)`)
}

// MarkStranded makes VMs of a dead worker wait for it, because only that worker has their images.
func (s *Scheduling) MarkStranded(ctx context.Context, l Lease, keys []Key, why string) error {
	return s.releaseVMs(ctx, l, keys, why, "strand",
		`state = 'stranded', asks = ''`, ` AND state IN ('assigned', 'running') AND `+deadWorkerCondition)
}

// deadWorkerCondition is the condition that the VM's worker has no lease at $3.
const deadWorkerCondition = `NOT EXISTS (SELECT 1 FROM leases WHERE leases.name = 'worker:' || vms.worker AND until > $3)`

// releaseVMs ends the transfers of VMs and applies set to those that match the condition which. why is
// the reason of their wait; verb is for errors.
func (s *Scheduling) releaseVMs(ctx context.Context, l Lease, keys []Key, why, verb, set, which string) error {
	if len(keys) == 0 {
		return nil
	}
	rows := make([][]any, len(keys))
	for i, k := range keys {
		rows[i] = []any{k.Plan, k.VM}
	}
	return s.db.write(ctx, verb, 1, func(x *tx) error {
		if err := x.checkLease(l); err != nil {
			return err
		}
		n, err := x.exec(`UPDATE vms SET `+set+`, holds = FALSE, since = 0, waits = $2, rev = $4
			FROM (SELECT value->>0 AS gplan, value->>1 AS gvm FROM `+x.kind.expandArray+` AS e) AS g
			WHERE vms.plan = gplan AND vms.vm = gvm`+which, toJSON(rows), why, x.now, x.rev)
		if err == nil && n == 0 {
			err = errSame
		}
		return err
	})
}
