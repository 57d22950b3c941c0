package fleetdb

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Plan is a submitted plan file. Its text never changes.
type Plan struct {
	Name    string    `json:"name"`              // unique name
	Text    string    `json:"text,omitempty"`    // the file; left out of lists
	Folder  string    `json:"folder,omitempty"`  // folder for its relative paths
	By      string    `json:"by,omitempty"`      // user who submitted it
	Role    string    `json:"role,omitempty"`    // role of By at submission, which determines the plan's permissions
	Created time.Time `json:"created"`           // time by the database's clock
	Listed  time.Time `json:"listed,omitzero"`   // when the list of its VMs was complete; zero if it is not
	Command Command   `json:"command,omitempty"` // command for all of its VMs
	State   PlanState `json:"state"`             // current state
	// why its VMs could not be listed, or its hook failed; for an ended plan, why it failed. nil without a
	// failure
	Failure *Failure  `json:"failure,omitempty"`
	Ended   time.Time `json:"ended,omitzero"` // when it ended, by the database's clock; zero while it is active
	Counts  Counts    `json:"counts"`         // VMs by state; nil in Changes
	Rev     int64     `json:"rev"`            // revision of the last change

	signature string // signature of the row; Plans.List does not set it
}

// PlanState is the state of a plan.
type PlanState string

// The states of a plan.
const (
	PlanListing PlanState = "listing" // its VMs are being listed; VMs that are listed already can begin
	PlanRunning PlanState = "running" // all VMs are listed, and not all have ended
	PlanEnded   PlanState = "ended"   // every VM has ended; the counts show how
	PlanFailed  PlanState = "failed"  // the plan ended with a Failure: its list of VMs is incomplete, or a hook failed
)

// IsFinal reports whether nothing more happens to the plan unless it is retried.
func (s PlanState) IsFinal() bool { return s == PlanEnded || s == PlanFailed }

// Failure is an error as it is stored and displayed.
type Failure struct {
	Kind string `json:"kind"`           // name of the fault.Kind
	Text string `json:"text"`           // text of the error
	Hint string `json:"hint,omitempty"` // remedy

	// Local reports that neither the source nor its host caused the failure.
	Local bool `json:"local,omitempty"`
}

// Plans are the submitted plans.
type Plans struct {
	db     *database // connections, shared with the other parts
	signer signer    // signs plans
	counts counts    // cached counts for List
}

// planColumns are the columns that scanPlan reads.
const planColumns = `name, folder, author, role, created, listed, ord, state, failure, ended, rev`

// scanPlan reads a plan from planColumns. A row that is ended with a failure is PlanFailed.
func scanPlan(row scanner) (Plan, error) {
	var p Plan
	var created, listed, ended int64
	var failure string
	err := row.Scan(&p.Name, &p.Folder, &p.By, &p.Role, &created, &listed, &p.Command, &p.State, &failure, &ended, &p.Rev)
	if err != nil {
		return Plan{}, err
	}
	p.Created, p.Listed, p.Ended = fromMicros(created), fromMicros(listed), fromMicros(ended)
	p.Failure, err = parseJSON[*Failure](failure)
	if p.State == PlanEnded && p.Failure != nil { // the table has one state for both
		p.State = PlanFailed
	}
	return p, err
}

// Add submits a plan: its name, text, folder, author and role. The same text again changes nothing, and
// returns the existing plan; another text under that name is fault.Conflict. If the existing plan
// cannot be verified, the same text again replaces its signature, author, role and folder, and its VMs
// are listed again.
func (s *Plans) Add(ctx context.Context, p Plan) (Plan, error) {
	err := s.db.write(ctx, "submit plan "+p.Name, 1, func(x *tx) error {
		old, err := x.readPlan(p.Name)
		if err == nil {
			return s.addAgain(x, old, p)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		p.Created = fromMicros(x.now)
		_, err = x.exec(`INSERT INTO plans (name, text, folder, author, role, created, state, rev, signature) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			p.Name, p.Text, p.Folder, p.By, p.Role, x.now, PlanListing, x.rev, s.signer.sign(planUse, planFields(p)...))
		return err
	})
	if err != nil {
		return Plan{}, err
	}
	return s.Get(ctx, p.Name)
}

// addAgain handles the second submission of a plan. It returns errSame if old is verified, or if this
// process has no keys.
func (s *Plans) addAgain(x *tx, old, p Plan) error {
	if err := samePlan(old, p); err != nil {
		return err
	}
	if s.signer.keys == nil || s.Verify(old) == nil {
		return errSame
	}
	p.Created = old.Created // the ids of the records of its hooks contain it
	_, err := x.exec(`UPDATE plans SET folder = $1, author = $2, role = $3, signature = $4, state = $5, failure = '', listed = 0, ended = 0, rev = $6 WHERE name = $7`,
		p.Folder, p.By, p.Role, s.signer.sign(planUse, planFields(p)...), PlanListing, x.rev, p.Name)
	if err != nil {
		return err
	}
	_, err = x.exec(`UPDATE vms SET signature = '' WHERE plan = $1`, p.Name) // VMs are signed when they are listed again
	return err
}

// samePlan returns fault.Conflict if the texts of two plans with the same name differ.
func samePlan(old, submitted Plan) error {
	if old.Text == submitted.Text {
		return nil
	}
	return fault.New(fault.Conflict, "there is another plan %s, submitted %s", old.Name, old.Created.Format("2006-01-02 15:04")).
		WithHint("give this one another name; or remove the other when it has ended: decamp plan drop %s", fault.Quote(old.Name))
}

// readPlan returns a plan with its text and signature, without its counts. It returns sql.ErrNoRows if
// the plan does not exist.
func (x *tx) readPlan(name string) (Plan, error) { return onePlan(x.ctx, x.Tx, name) }

// onePlan is tx.readPlan for a transaction that only reads.
func onePlan(ctx context.Context, t *sql.Tx, name string) (Plan, error) {
	p, err := scanPlan(t.QueryRowContext(ctx, `SELECT `+planColumns+` FROM plans WHERE name = $1`, name))
	if err != nil {
		return Plan{}, err
	}
	return p, t.QueryRowContext(ctx, `SELECT text, signature FROM plans WHERE name = $1`, name).Scan(&p.Text, &p.signature)
}

// requirePlan is readPlan, but returns fault.NotFound if the plan does not exist.
func (x *tx) requirePlan(name string) (Plan, error) {
	p, err := x.readPlan(name)
	if errors.Is(err, sql.ErrNoRows) {
		err = noPlanError(name)
	}
	return p, err
}

// noPlanError returns the fault.NotFound for a plan.
func noPlanError(name string) error {
	return fault.New(fault.NotFound, "plan %s does not exist", name).WithHint("list the plans: decamp status")
}

// Get returns a plan with its text and counts.
func (s *Plans) Get(ctx context.Context, name string) (Plan, error) {
	var p Plan
	err := s.db.readTx(ctx, "read plan "+name, func(ctx context.Context, t *sql.Tx) (err error) {
		if p, err = onePlan(ctx, t, name); err != nil {
			return err
		}
		p.Counts, err = countOne(ctx, t, name)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = noPlanError(name)
	}
	return p, err
}

// List returns all plans, the oldest first, with counts and without texts.
func (s *Plans) List(ctx context.Context) ([]Plan, error) {
	var all []Plan
	err := s.db.readTx(ctx, "list plans", func(ctx context.Context, t *sql.Tx) (err error) {
		if all, err = queryAll(ctx, t, scanPlan, `SELECT `+planColumns+` FROM plans ORDER BY created, name`); err != nil {
			return err
		}
		return s.fillCounts(ctx, t, all)
	})
	return all, err
}

// fillCounts sets the Counts of plans, as of the transaction t.
func (s *Plans) fillCounts(ctx context.Context, t *sql.Tx, plans []Plan) error {
	var rev int64
	if err := t.QueryRowContext(ctx, `SELECT rev FROM meta WHERE id = 1`).Scan(&rev); err != nil {
		return err
	}
	of, err := s.counts.countsAt(ctx, t, rev)
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

// SetState sets the state of a plan. When a plan runs without a failure, its list of VMs is complete. A
// plan that ends with a failure becomes PlanFailed.
func (s *Plans) SetState(ctx context.Context, name string, state PlanState, failure *Failure) error {
	return s.db.write(ctx, "update plan "+name, 1, func(x *tx) error {
		p, err := x.requirePlan(name)
		if err != nil {
			return err
		}
		return x.setPlanState(p, state, failure)
	})
}

// Advance is SetState for a caller that decided by p, a row that it read before. It changes nothing if
// the row has changed since, or if the plan would end while a VM has not: the caller must read the
// changes and decide again.
func (s *Plans) Advance(ctx context.Context, p Plan, state PlanState, failure *Failure) error {
	return s.db.write(ctx, "update plan "+p.Name, 1, func(x *tx) error {
		now, err := x.requirePlan(p.Name)
		if err != nil {
			return err
		}
		if now.Rev != p.Rev {
			return errSame
		}
		if state.IsFinal() {
			var active int
			err := x.scanRow(`SELECT count(*) FROM vms WHERE plan = $1 AND state NOT IN ('done', 'failed', 'canceled')`, []any{p.Name}, &active)
			if err != nil {
				return err
			}
			if active > 0 {
				return errSame
			}
		}
		return x.setPlanState(now, state, failure)
	})
}

// setPlanState implements Plans.SetState. p is the current row of the plan.
func (x *tx) setPlanState(p Plan, state PlanState, failure *Failure) error {
	listed, ended := toMicros(p.Listed), int64(0)
	if listed == 0 && failure == nil && state != PlanListing {
		listed = x.now
	}
	if state.IsFinal() {
		state, ended = PlanEnded, x.now
	}
	_, err := x.exec(`UPDATE plans SET state = $1, failure = $2, listed = $3, ended = $4, rev = $5 WHERE name = $6`,
		state, toJSON(failure), listed, ended, x.rev, p.Name)
	return err
}

// Drop removes a plan that has ended, with its VMs and their records. An active plan is fault.Conflict.
func (s *Plans) Drop(ctx context.Context, name string) error {
	return s.db.write(ctx, "drop plan "+name, 1, func(x *tx) error {
		p, err := x.requirePlan(name)
		if err != nil {
			return err
		}
		if !p.State.IsFinal() {
			return fault.New(fault.Conflict, "plan %s is %s", name, p.State).WithHint("cancel it first: decamp cancel %s", fault.Quote(name))
		}
		for _, s := range []string{`DELETE FROM progress WHERE plan = $1`, `DELETE FROM vms WHERE plan = $1`, `DELETE FROM plans WHERE name = $1`, `DELETE FROM counters WHERE name = '` + readCounter + `' AND label = $1`} {
			if _, err := x.exec(s, name); err != nil {
				return err
			}
		}
		if _, err := x.exec(`DELETE FROM records WHERE kind IN ($1, $3, $4) AND substr(id, 1, length($2)) = $2`, HooksOfVM, Key{Plan: name}.String(), rehearsals, OutageOfVM); err != nil {
			return err
		}
		_, err = x.exec(`INSERT INTO dropped (name, rev) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET rev = excluded.rev`, name, x.rev)
		return err
	})
}

// planUse is the use of the fleet key for plans.
const planUse = "plan"

// planFields are the fields that a plan's signature covers: all that determines what workers do. State
// and Command are not included, because they change.
func planFields(p Plan) []string {
	return []string{p.Name, p.Text, p.Folder, p.By, p.Role, strconv.FormatInt(toMicros(p.Created), 10)}
}

// Verify returns fault.Denied unless p, as Get returned it, was submitted by a process with a key of
// this fleet and was not changed since.
func (s *Plans) Verify(p Plan) error {
	if s.signer.keys == nil {
		return noKeysError()
	}
	if err := s.signer.keys.Verify(p.signature, planUse, planFields(p)...); err != nil {
		return fault.New(fault.Denied, "plan %s is refused: %w", p.Name, err).
			WithHint("if its text is what you expect, submit the same file again with the fleet's key: decamp plan run FILE --detach; else see who can write to the database")
	}
	return nil
}

// SameSignature reports whether p and q have the same signature. Plans without a signature never do.
func (p Plan) SameSignature(q Plan) bool { return p.signature != "" && p.signature == q.signature }
