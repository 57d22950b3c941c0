package roster

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

const vmColumns = `plan, vm, seq, warm, listing, state, step, waits, worker, storage, epoch, asks, holds, since, expected,
	ord, rehearse, attempts, not_before, began, ended, failure, rev`

// listing is what is known of a VM from the beginning and is not selected by.
type listing struct {
	Name      string   `json:"name"`
	Source    string   `json:"source"`
	Host      string   `json:"host"`
	Datastore string   `json:"datastore"`
	To        []string `json:"to"`
	Runs      []string `json:"runs"`
	Priority  int      `json:"priority"`
	Disks     int      `json:"disks"`
	Bytes     int64    `json:"bytes"`
	Line      int      `json:"line"`
	Column    int      `json:"column"`
}

func listingOf(v VM) listing {
	return listing{v.Name, v.Source, v.Host, v.Datastore, v.To, v.Runs, v.Priority, v.Disks, v.Bytes, v.Line, v.Column}
}

func (l listing) into(v *VM) {
	v.Name, v.Source, v.Host, v.Datastore, v.To, v.Runs = l.Name, l.Source, l.Host, l.Datastore, l.To, l.Runs
	v.Priority, v.Disks, v.Bytes, v.Line, v.Column = l.Priority, l.Disks, l.Bytes, l.Line, l.Column
}

func scanVM(row scanner) (VM, error) {
	var v VM
	var listed, storage, rehearse, failure string
	var since, notBefore, began, ended int64
	err := row.Scan(&v.Plan, &v.VM, &v.Seq, &v.Warm, &listed, &v.State, &v.Step, &v.Waits, &v.Worker, &storage, &v.Epoch, &v.Asks, &v.Holds, &since,
		&v.Expected, &v.Order, &rehearse, &v.Attempts, &notBefore, &began, &ended, &failure, &v.Rev)
	if err != nil {
		return VM{}, err
	}
	v.Since, v.NotBefore, v.Began, v.Ended = moment(since), moment(notBefore), moment(began), moment(ended)
	l, err := parse[listing](listed)
	l.into(&v)
	var serr, rerr, ferr error
	v.Storage, serr = parse[[]string](storage)
	v.Rehearse, rerr = parse[*Rehearsal](rehearse)
	v.Failure, ferr = parse[*Failure](failure)
	if err := errors.Join(err, serr, rerr, ferr); err != nil {
		return VM{}, fault.New(fault.Corrupt, "the row of %s/%s: %w", v.Plan, v.VM, err)
	}
	return v, nil
}

// batch is how many VMs are one statement: a megabyte or two of parameters.
const batch = 1000

// AddVMs queues VMs that were found, in one transaction. Those that are there stay as they are; if
// they have no signature, their listing is replaced and signed.
// Who has no Seq comes behind the others of its plan. Those of a plan that is canceled are, and
// those that the plan names and nobody has are Failed from the beginning: they say so.
func (r *Roster) AddVMs(ctx context.Context, vms []VM) error {
	if len(vms) == 0 {
		return nil
	}
	return r.write(ctx, "add VMs", len(vms), func(x *tx) error {
		a := adding{tx: x, roster: r, plans: map[string]*planTail{}, rev: x.rev - int64(len(vms))}
		for len(vms) > 0 {
			n := min(batch, len(vms))
			if err := a.add(vms[:n]); err != nil {
				return err
			}
			vms = vms[n:]
		}
		return nil
	})
}

// adding is an AddVMs under way. Each VM has a revision of its own, so that followers may read
// in pieces.
type adding struct {
	*tx
	roster *Roster
	rev    int64
	plans  map[string]*planTail
}

// planTail is what new VMs of a plan begin from.
type planTail struct {
	plan  Plan
	seq   int64
	state State
	ended int64
}

func (a *adding) add(vms []VM) error {
	rows := make([][]any, len(vms))
	for i, v := range vms {
		tail, err := a.tail(v.Plan)
		if err != nil {
			return err
		}
		if v.Seq == 0 {
			v.Seq = tail.seq + 1
		}
		tail.seq = max(tail.seq, v.Seq)
		a.rev++
		state, ended, failure := tail.state, tail.ended, ""
		if v.State == Failed && state == Queued { // it is in the plan, and was not found
			state, ended, failure = Failed, a.now, text(v.Failure)
		}
		row := signedVM{listing: text(listingOf(v)), spec: text(v.Spec)}
		row.signature = a.roster.signVM(tail.plan, v.Key, v.Warm, row)
		rows[i] = []any{v.Plan, v.VM, v.Seq, v.Warm, row.listing, row.spec, state, ended, a.rev, failure, row.signature}
	}
	_, err := a.exec(`INSERT INTO vms (plan, vm, seq, warm, listing, spec, state, ended, rev, failure, signature, asks)
		SELECT value->>0, value->>1, CAST(value->>2 AS BIGINT), CAST(value->>3 AS BOOLEAN), value->>4, value->>5,
			value->>6, CAST(value->>7 AS BIGINT), CAST(value->>8 AS BIGINT), value->>9, value->>10, CASE WHEN value->>6 = 'queued' THEN 'first' ELSE '' END
		FROM `+a.kind.each+` AS e WHERE true ON CONFLICT (plan, vm) DO UPDATE
			SET warm = excluded.warm, listing = excluded.listing, spec = excluded.spec, signature = excluded.signature, rev = excluded.rev
			WHERE vms.signature = '' AND excluded.signature <> ''`, text(rows))
	return err
}

func (a *adding) tail(plan string) (*planTail, error) {
	if t := a.plans[plan]; t != nil {
		return t, nil
	}
	p, err := a.need(plan)
	if err != nil {
		return nil, err
	}
	t := &planTail{plan: p, state: Queued}
	if p.Order.ends() {
		t.state, t.ended = Canceled, a.now
	}
	a.plans[plan] = t
	return t, a.row(`SELECT coalesce(max(seq), 0) FROM vms WHERE plan = $1`, []any{plan}, &t.seq)
}

// VM returns one with its Spec and what VerifyVM needs.
func (r *Roster) VM(ctx context.Context, k Key) (VM, error) {
	var v VM
	err := r.see(ctx, "read VM "+k.String(), func(ctx context.Context, t *sql.Tx) (err error) {
		if v, err = oneVM(ctx, t, k); err != nil {
			return err
		}
		err = t.QueryRowContext(ctx, `SELECT listing, spec, signature FROM vms WHERE plan = $1 AND vm = $2`, k.Plan, k.VM).
			Scan(&v.signed.listing, &v.signed.spec, &v.signed.signature)
		v.Spec = json.RawMessage(v.signed.spec)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = noVM(k)
	}
	return v, err
}

func oneVM(ctx context.Context, t *sql.Tx, k Key) (VM, error) {
	return scanVM(t.QueryRowContext(ctx, `SELECT `+vmColumns+` FROM vms WHERE plan = $1 AND vm = $2`, k.Plan, k.VM))
}

// vm is oneVM, or a fault.NotFound.
func (x *tx) vm(k Key) (VM, error) {
	v, err := oneVM(x.ctx, x.Tx, k)
	if errors.Is(err, sql.ErrNoRows) {
		err = noVM(k)
	}
	return v, err
}

func noVM(k Key) error {
	return fault.New(fault.NotFound, "there is no VM %s in plan %s", k.VM, k.Plan).WithHint("decamp status %s lists those that there are", fault.Quote(k.Plan))
}

// String returns "plan/vm-42".
func (k Key) String() string { return k.Plan + "/" + k.VM }

// Query selects VMs; what is left zero selects all.
type Query struct {
	Plan   string
	States []State
	Worker string
	After  int64 // Seq of the last one of the page before; with a Plan only
	Limit  int
}

// VMs returns those that q selects, by plan and Seq, without their Specs.
func (r *Roster) VMs(ctx context.Context, q Query) ([]VM, error) {
	where, args := q.where()
	var all []VM
	err := r.see(ctx, "list VMs", func(ctx context.Context, t *sql.Tx) (err error) {
		all, err = query(ctx, t, scanVM, `SELECT `+vmColumns+` FROM vms`+where, args...)
		return err
	})
	return all, err
}

func (q Query) where() (string, []any) {
	var terms []string
	var args []any
	arg := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("$%d", len(args))
	}
	if q.Plan != "" {
		terms = append(terms, "plan = "+arg(q.Plan), "seq > "+arg(q.After))
	}
	if q.Worker != "" {
		terms = append(terms, "worker = "+arg(q.Worker))
	}
	if len(q.States) > 0 {
		var in []string
		for _, s := range q.States {
			in = append(in, arg(s))
		}
		terms = append(terms, "state IN ("+strings.Join(in, ", ")+")")
	}
	clause := ""
	if len(terms) > 0 {
		clause = " WHERE " + strings.Join(terms, " AND ")
	}
	clause += " ORDER BY plan, seq"
	if q.Limit > 0 {
		clause += " LIMIT " + arg(q.Limit)
	}
	return clause, args
}

// length is how long d takes, as the tables hold it: nanoseconds.
func length(d time.Duration) int64 { return int64(d) }
