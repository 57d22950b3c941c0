package fleetdb

import (
	"context"
	"database/sql"
	"sync"
)

// Counts is how many VMs of a plan are in each state.
type Counts map[State]int

// counts remembers how many VMs are in each state, as long as nothing changes: counting reads
// the index of all VMs.
type counts struct {
	mu  sync.Mutex
	rev int64 // revision of the counts; 0 if there are none
	of  map[string]Counts
}

// countsAt returns the counts of all plans at a revision, which t sees.
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

// countOne counts by the index on state and plan.
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

var states = []State{Queued, Assigned, Running, Stranded, Done, Failed, Canceled}
