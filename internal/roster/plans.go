package roster

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/decamp/decamp/internal/fault"
)

const planColumns = `name, folder, author, role, created, listed, ord, state, failure, ended, rev`

func scanPlan(row scanner) (Plan, error) {
	var p Plan
	var created, listed, ended int64
	var failure string
	err := row.Scan(&p.Name, &p.Folder, &p.By, &p.Role, &created, &listed, &p.Order, &p.State, &failure, &ended, &p.Rev)
	if err != nil {
		return Plan{}, err
	}
	p.Created, p.Listed, p.Ended = moment(created), moment(listed), moment(ended)
	p.Failure, err = parse[*Failure](failure)
	if p.State == PlanEnded && p.Failure != nil { // the table has one state for both
		p.State = PlanFailed
	}
	return p, err
}

// AddPlan submits a plan: its name, text, folder, and who did in which role. The same text again
// changes nothing, and returns what is there; another text under that name is fault.Conflict. If
// the plan that is there cannot be verified, the same text again replaces its signature, author,
// role and folder, and has its VMs listed again.
func (r *Roster) AddPlan(ctx context.Context, p Plan) (Plan, error) {
	err := r.write(ctx, "submit plan "+p.Name, 1, func(x *tx) error {
		old, err := x.plan(p.Name)
		if err == nil {
			return r.addAgain(x, old, p)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		p.Created = moment(x.now)
		_, err = x.exec(`INSERT INTO plans (name, text, folder, author, role, created, state, rev, signature) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			p.Name, p.Text, p.Folder, p.By, p.Role, x.now, PlanListing, x.rev, r.signPlan(p))
		return err
	})
	if err != nil {
		return Plan{}, err
	}
	return r.Plan(ctx, p.Name)
}

func (r *Roster) addAgain(x *tx, old, p Plan) error {
	if err := samePlan(old, p); err != nil {
		return err
	}
	if r.cfg.Keys == nil || r.VerifyPlan(old) == nil {
		return errSame
	}
	p.Created = old.Created // it names the records of its hooks
	_, err := x.exec(`UPDATE plans SET folder = $1, author = $2, role = $3, signature = $4, state = $5, failure = '', listed = 0, ended = 0, rev = $6 WHERE name = $7`,
		p.Folder, p.By, p.Role, r.signPlan(p), PlanListing, x.rev, p.Name)
	if err != nil {
		return err
	}
	_, err = x.exec(`UPDATE vms SET signature = '' WHERE plan = $1`, p.Name) // to be signed when they are listed
	return err
}

func samePlan(old, submitted Plan) error {
	if old.Text == submitted.Text {
		return nil
	}
	return fault.New(fault.Conflict, "there is another plan %s, submitted %s", old.Name, old.Created.Format("2006-01-02 15:04")).
		WithHint("give this one another name; or drop that one, once it has ended")
}

// plan selects one with its text and signature, without its counts.
func (x *tx) plan(name string) (Plan, error) { return onePlan(x.ctx, x.Tx, name) }

func onePlan(ctx context.Context, t *sql.Tx, name string) (Plan, error) {
	p, err := scanPlan(t.QueryRowContext(ctx, `SELECT `+planColumns+` FROM plans WHERE name = $1`, name))
	if err != nil {
		return Plan{}, err
	}
	return p, t.QueryRowContext(ctx, `SELECT text, signature FROM plans WHERE name = $1`, name).Scan(&p.Text, &p.signature)
}

// need is plan, whose absence is the caller's error.
func (x *tx) need(name string) (Plan, error) {
	p, err := x.plan(name)
	if errors.Is(err, sql.ErrNoRows) {
		err = noPlan(name)
	}
	return p, err
}

func noPlan(name string) error {
	return fault.New(fault.NotFound, "there is no plan %s", name).WithHint("decamp status lists those that there are")
}

// Plan returns a plan with its text and counts.
func (r *Roster) Plan(ctx context.Context, name string) (Plan, error) {
	var p Plan
	err := r.see(ctx, "read plan "+name, func(ctx context.Context, t *sql.Tx) (err error) {
		if p, err = onePlan(ctx, t, name); err != nil {
			return err
		}
		p.Counts, err = countOne(ctx, t, name)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = noPlan(name)
	}
	return p, err
}

// Plans returns all, the oldest first, with counts and without texts.
func (r *Roster) Plans(ctx context.Context) ([]Plan, error) {
	var all []Plan
	err := r.see(ctx, "list plans", func(ctx context.Context, t *sql.Tx) (err error) {
		if all, err = query(ctx, t, scanPlan, `SELECT `+planColumns+` FROM plans ORDER BY created, name`); err != nil {
			return err
		}
		return r.counts.fill(ctx, t, all)
	})
	return all, err
}

// SetPlan moves a plan on. Once it runs without a failure, all its VMs were found. A plan that
// ends with a failure is PlanFailed.
func (r *Roster) SetPlan(ctx context.Context, name string, state PlanState, failure *Failure) error {
	return r.write(ctx, "update plan "+name, 1, func(x *tx) error {
		p, err := x.need(name)
		if err != nil {
			return err
		}
		listed, ended := micros(p.Listed), int64(0)
		if listed == 0 && failure == nil && state != PlanListing {
			listed = x.now
		}
		if state.Over() {
			state, ended = PlanEnded, x.now
		}
		_, err = x.exec(`UPDATE plans SET state = $1, failure = $2, listed = $3, ended = $4, rev = $5 WHERE name = $6`,
			state, text(failure), listed, ended, x.rev, name)
		return err
	})
}

// DropPlan forgets a plan that has ended, with its VMs.
func (r *Roster) DropPlan(ctx context.Context, name string) error {
	return r.write(ctx, "drop plan "+name, 1, func(x *tx) error {
		p, err := x.need(name)
		if err != nil {
			return err
		}
		if !p.State.Over() {
			return fault.New(fault.Conflict, "plan %s is %s", name, p.State).WithHint("cancel it first: decamp cancel %s", fault.Quote(name))
		}
		for _, s := range []string{`DELETE FROM progress WHERE plan = $1`, `DELETE FROM vms WHERE plan = $1`, `DELETE FROM plans WHERE name = $1`} {
			if _, err := x.exec(s, name); err != nil {
				return err
			}
		}
		if _, err := x.exec(`DELETE FROM records WHERE kind IN ($1, $3) AND substr(id, 1, length($2)) = $2`, HooksOfVM, Key{Plan: name}.String(), rehearsals); err != nil {
			return err
		}
		_, err = x.exec(`INSERT INTO dropped (name, rev) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET rev = excluded.rev`, name, x.rev)
		return err
	})
}

// counts remembers how many VMs are in each state, as long as nothing changes: counting reads
// the index of all VMs.
type counts struct {
	mu  sync.Mutex
	rev int64 // that they are of; 0: none
	of  map[string]Counts
}

func (c *counts) fill(ctx context.Context, t *sql.Tx, plans []Plan) error {
	var rev int64
	if err := t.QueryRowContext(ctx, `SELECT rev FROM meta WHERE id = 1`).Scan(&rev); err != nil {
		return err
	}
	of, err := c.at(ctx, t, rev)
	if err != nil {
		return err
	}
	for i := range plans {
		plans[i].Counts = Counts{}
		for state, n := range of[plans[i].Name] {
			plans[i].Counts[state] = n
		}
	}
	return nil
}

func (c *counts) at(ctx context.Context, t *sql.Tx, rev int64) (map[string]Counts, error) {
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
	rows, err := query(ctx, t, scan, `SELECT plan, state, count(*) FROM vms GROUP BY state, plan`)
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
