package fleetdb

import (
	"context"
	"database/sql"
	"sync"
)

// Counts is the number of VMs of a plan by state. States without VMs are left out.
type Counts map[State]int

// counts caches the counts of all plans until the next revision: counting reads the index of all VMs.
// It is safe for concurrent use.
type counts struct {
	mu  sync.Mutex        // guards the fields below; not held during a query
	rev int64             // revision of the counts; 0 if nothing is cached
	of  map[string]Counts // counts by plan; nil if nothing is cached. The map is shared and must not be changed
}

// countsAt returns the counts of all plans at a revision, which t sees. The caller must not change the
// map.
func (c *counts) countsAt(ctx context.Context, t *sql.Tx, rev int64) (map[string]Counts, error) {
	c.mu.Lock()
	kept, of := c.rev, c.of
	c.mu.Unlock()
	if of != nil && kept == rev {
		return of, nil
	}
	of, err := countAll(ctx, t)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if rev >= c.rev {
		c.rev, c.of = rev, of
	}
	return of, nil
}

// countAll returns the counts of all plans. It reads one index entry for each VM.
func countAll(ctx context.Context, t *sql.Tx) (map[string]Counts, error) {
	type row struct {
		plan  string
		state State
		n     int
	}
	scan := func(s scanner) (r row, err error) { return r, s.Scan(&r.plan, &r.state, &r.n) }
	rows, err := queryAll(ctx, t, scan, `SELECT plan, state, count(*) FROM vms GROUP BY state, plan`)
	of := map[string]Counts{}
	for _, r := range rows {
		if of[r.plan] == nil {
			of[r.plan] = Counts{}
		}
		of[r.plan][r.state] = r.n
	}
	return of, err
}

// countOne returns the counts of one plan, by the index on state and plan.
func countOne(ctx context.Context, t *sql.Tx, plan string) (Counts, error) {
	of := Counts{}
	for _, state := range states {
		var n int
		if err := t.QueryRowContext(ctx, `SELECT count(*) FROM vms WHERE state = $1 AND plan = $2`, state, plan).Scan(&n); err != nil {
			return nil, err
		}
		if n > 0 {
			of[state] = n
		}
	}
	return of, nil
}

// states are all states of a VM.
var states = []State{Queued, Assigned, Running, Stranded, Done, Failed, Canceled}
