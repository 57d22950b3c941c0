package fleetdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Key names a VM of a plan.
type Key struct {
	Plan string `json:"plan"`
	VM   string `json:"vm"` // its reference at the source, "vm-42": names may be there twice
}

// String returns "plan/vm-42".
func (k Key) String() string { return k.Plan + "/" + k.VM }

// VM is one VM of a plan: its tasks and its state.
type VM struct {
	Key

	// What is known from the listing. Only Add changes it, of VMs without a signature.
	Name      string          `json:"name"`
	Seq       int64           `json:"seq"`       // its place in the plan
	Source    string          `json:"source"`    // host:port that is logged in to
	Host      string          `json:"host"`      // host of the VM when it was listed
	Datastore string          `json:"datastore"` // datastore of its .vmx
	To        []string        `json:"to"`        // dir:/srv/vm, …
	Runs      []string        `json:"runs"`      // journal.ID of each To
	Warm      bool            `json:"warm,omitempty"`
	Priority  int             `json:"priority,omitempty"`
	Disks     int             `json:"disks"`
	Bytes     int64           `json:"bytes"`          // allocated, of all disks
	Line      int             `json:"line,omitempty"` // line and position of its entry in the plan's text
	Column    int             `json:"column,omitempty"`
	Spec      json.RawMessage `json:"spec,omitempty"` // its planfile.Options for the worker; left out of lists

	// Who drives it, and how far it is.
	State     State         `json:"state"`
	Step      string        `json:"step,omitempty"`     // step of package migrate's pipeline
	Waits     string        `json:"waits,omitempty"`    // reason of a wait, unless it waits for the scheduler
	Worker    string        `json:"worker,omitempty"`   // worker that executes it, or did last
	Storage   []string      `json:"storage,omitempty"`  // ids of the storages that its images are on, once it began
	Epoch     int64         `json:"epoch"`              // epoch of the last claim; 0 if it was never claimed
	Asks      Stage         `json:"asks,omitempty"`     // the transfer that it wants to begin
	Holds     bool          `json:"holds,omitempty"`    // its transfer may go on: it has its slots
	Since     time.Time     `json:"since,omitzero"`     // start of Holds
	Expected  time.Duration `json:"expected,omitempty"` // expected duration of the requested or granted transfer
	Order     Order         `json:"order,omitempty"`
	Rehearse  *Rehearsal    `json:"rehearse,omitempty"` // pending request for a rehearsal
	Attempts  int           `json:"attempts,omitempty"` // failed attempts since the last retry command
	NotBefore time.Time     `json:"notBefore,omitzero"` // earliest time of the next attempt
	Began     time.Time     `json:"began,omitzero"`
	Ended     time.Time     `json:"ended,omitzero"`
	Failure   *Failure      `json:"failure,omitempty"` // failure of the last attempt
	Rev       int64         `json:"rev"`

	signed signedVM // only VMs.Get reads it
}

// State is where a VM of a plan stands.
type State string

// The states of a VM.
const (
	Queued   State = "queued"   // no worker executes it: it waits for a slot, or for its next attempt
	Assigned State = "assigned" // a worker is to drive it
	Running  State = "running"  // a worker drives it
	Stranded State = "stranded" // its worker is gone and has its images: it waits for that worker
	Done     State = "done"     // published
	Failed   State = "failed"   // an attempt failed for a reason that does not pass, or too often
	Canceled State = "canceled" // and undone
)

// Over reports whether the VM stays in this state unless a user retries it.
func (s State) Over() bool { return s == Done || s == Failed || s == Canceled }

// Stage is the kind of transfer that a VM requests; the values are those of package sched.
type Stage string

// Stages.
const (
	NoStage Stage = ""
	First   Stage = "first"   // nothing of it was copied yet
	Again   Stage = "again"   // a warm round, or a copy that goes on
	Cutover Stage = "cutover" // the VM is about to be switched off
)

// VMs are the VMs of all plans.
type VMs struct {
	db     *database
	signer signer
}

const vmColumns = `plan, vm, seq, warm, listing, state, step, waits, worker, storage, epoch, asks, holds, since, expected,
	ord, rehearse, attempts, not_before, began, ended, failure, rev`

// listing is the data of a VM that never changes and is not selected by.
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

func (l listing) copyTo(v *VM) {
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
	v.Since, v.NotBefore, v.Began, v.Ended = fromMicros(since), fromMicros(notBefore), fromMicros(began), fromMicros(ended)
	l, err := parseJSON[listing](listed)
	l.copyTo(&v)
	var serr, rerr, ferr error
	v.Storage, serr = parseJSON[[]string](storage)
	v.Rehearse, rerr = parseJSON[*Rehearsal](rehearse)
	v.Failure, ferr = parseJSON[*Failure](failure)
	if err := errors.Join(err, serr, rerr, ferr); err != nil {
		return VM{}, fault.New(fault.Corrupt, "the row of %s/%s: %w", v.Plan, v.VM, err)
	}
	return v, nil
}

// batch is how many VMs are one statement: a megabyte or two of parameters.
const batch = 1000

// Add queues listed VMs in one transaction. Existing rows stay unchanged; if they have no signature,
// their listing is replaced and signed. A VM without Seq follows the others of its plan. VMs of a
// canceled plan are Canceled, and named VMs that do not exist are Failed with that reason.
func (s *VMs) Add(ctx context.Context, vms []VM) error {
	if len(vms) == 0 {
		return nil
	}
	return s.db.write(ctx, "add VMs", len(vms), func(x *tx) error {
		a := vmInserter{tx: x, signer: s.signer, plans: map[string]*planTail{}, rev: x.rev - int64(len(vms))}
		for len(vms) > 0 {
			n := min(batch, len(vms))
			if err := a.addBatch(vms[:n]); err != nil {
				return err
			}
			vms = vms[n:]
		}
		return nil
	})
}

// adding is an Add in progress. Each VM has a separate revision, so that followers can read in parts.
type vmInserter struct {
	*tx
	signer signer
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

func (a *vmInserter) addBatch(vms []VM) error {
	rows := make([][]any, len(vms))
	for i, v := range vms {
		tail, err := a.tailOf(v.Plan)
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
			state, ended, failure = Failed, a.now, toJSON(v.Failure)
		}
		row := signedVM{listing: toJSON(listingOf(v)), spec: toJSON(v.Spec)}
		row.signature = a.signer.sign(vmUse, vmFields(tail.plan, v.Key, v.Warm, row)...)
		rows[i] = []any{v.Plan, v.VM, v.Seq, v.Warm, row.listing, row.spec, state, ended, a.rev, failure, row.signature}
	}
	_, err := a.exec(`INSERT INTO vms (plan, vm, seq, warm, listing, spec, state, ended, rev, failure, signature, asks)
		SELECT value->>0, value->>1, CAST(value->>2 AS BIGINT), CAST(value->>3 AS BOOLEAN), value->>4, value->>5,
			value->>6, CAST(value->>7 AS BIGINT), CAST(value->>8 AS BIGINT), value->>9, value->>10, CASE WHEN value->>6 = 'queued' THEN 'first' ELSE '' END
		FROM `+a.kind.expandArray+` AS e WHERE true ON CONFLICT (plan, vm) DO UPDATE
			SET warm = excluded.warm, listing = excluded.listing, spec = excluded.spec, signature = excluded.signature, rev = excluded.rev
			WHERE vms.signature = '' AND excluded.signature <> ''`, toJSON(rows))
	return err
}

func (a *vmInserter) tailOf(plan string) (*planTail, error) {
	if t := a.plans[plan]; t != nil {
		return t, nil
	}
	p, err := a.requirePlan(plan)
	if err != nil {
		return nil, err
	}
	t := &planTail{plan: p, state: Queued}
	if p.Order.Undoes() {
		t.state, t.ended = Canceled, a.now
	}
	a.plans[plan] = t
	return t, a.scanRow(`SELECT coalesce(max(seq), 0) FROM vms WHERE plan = $1`, []any{plan}, &t.seq)
}

// Get returns a VM with its Spec and what Verify needs.
func (s *VMs) Get(ctx context.Context, k Key) (VM, error) {
	var v VM
	err := s.db.readTx(ctx, "read VM "+k.String(), func(ctx context.Context, t *sql.Tx) (err error) {
		if v, err = oneVM(ctx, t, k); err != nil {
			return err
		}
		err = t.QueryRowContext(ctx, `SELECT listing, spec, signature FROM vms WHERE plan = $1 AND vm = $2`, k.Plan, k.VM).
			Scan(&v.signed.listing, &v.signed.spec, &v.signed.signature)
		v.Spec = json.RawMessage(v.signed.spec)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = noVMError(k)
	}
	return v, err
}

func oneVM(ctx context.Context, t *sql.Tx, k Key) (VM, error) {
	return scanVM(t.QueryRowContext(ctx, `SELECT `+vmColumns+` FROM vms WHERE plan = $1 AND vm = $2`, k.Plan, k.VM))
}

// readVM is oneVM, or a fault.NotFound.
func (x *tx) readVM(k Key) (VM, error) {
	v, err := oneVM(x.ctx, x.Tx, k)
	if errors.Is(err, sql.ErrNoRows) {
		err = noVMError(k)
	}
	return v, err
}

func noVMError(k Key) error {
	return fault.New(fault.NotFound, "there is no VM %s in plan %s", k.VM, k.Plan).WithHint("decamp status %s lists those that there are", fault.Quote(k.Plan))
}

// Query selects VMs; a zero field selects all.
type Query struct {
	Plan   string
	States []State
	Worker string
	After  int64 // Seq of the last one of the page before; with a Plan only
	Limit  int
}

// List returns those that q selects, by plan and Seq, without their Specs.
func (s *VMs) List(ctx context.Context, q Query) ([]VM, error) {
	where, args := q.whereClause()
	var all []VM
	err := s.db.readTx(ctx, "list VMs", func(ctx context.Context, t *sql.Tx) (err error) {
		all, err = queryAll(ctx, t, scanVM, `SELECT `+vmColumns+` FROM vms`+where, args...)
		return err
	})
	return all, err
}

func (q Query) whereClause() (string, []any) {
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

// vmUse is the use of the fleet key for VMs.
const vmUse = "vm"

// signedVM is the part of a VM's row that is signed, as the database has it.
type signedVM struct {
	listing   string
	spec      string
	signature string
}

// vmFields are the fields that a VM's signature covers: its plan, by the plan's signature, and its
// tasks.
func vmFields(p Plan, k Key, warm bool, row signedVM) []string {
	return []string{p.signature, k.Plan, k.VM, strconv.FormatBool(warm), row.listing, row.spec}
}

// Verify returns fault.Denied unless v, as Get returned it, was listed for p, which is verified,
// and was not changed since.
func (s *VMs) Verify(p Plan, v VM) error {
	if s.signer.keys == nil {
		return noKeysError()
	}
	if err := s.signer.keys.Verify(v.signed.signature, vmUse, vmFields(p, v.Key, v.Warm, v.signed)...); err != nil {
		return fault.New(fault.Denied, "VM %s of plan %s is refused: %w", v.Name, p.Name, err).
			WithHint("see who can write to the database; then cancel the plan, drop it and submit it again")
	}
	return nil
}

// Rehearsal is a user's request to boot a warm VM from its current images. The worker that executes the
// VM carries it out once. It is valid until it is answered or withdrawn; withdrawing it ends a running
// rehearsal.
type Rehearsal struct {
	ID       string        `json:"id"`                 // another one for each that is asked
	Expect   string        `json:"expect,omitempty"`   // text that means the guest is up, beside the known signs
	Deadline time.Duration `json:"deadline,omitempty"` // time limit of the guest; 0 is the default
}
