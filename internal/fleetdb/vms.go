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

// Key identifies a VM of a plan.
type Key struct {
	Plan string `json:"plan"` // name of the plan
	VM   string `json:"vm"`   // reference of the VM at its source, "vm-42": names need not be unique
}

// String returns "plan/vm-42".
func (k Key) String() string { return k.Plan + "/" + k.VM }

// VM is one VM of a plan: the data from its listing, and its state.
type VM struct {
	Key

	// name at the source, for users
	Name      string          `json:"name"`
	Seq       int64           `json:"seq"`                // position in the plan, from 1
	Source    string          `json:"source"`             // host:port of the ESXi host or vCenter
	Host      string          `json:"host"`               // host of the VM when it was listed
	Datastore string          `json:"datastore"`          // datastore of its .vmx file
	To        []string        `json:"to"`                 // destinations, such as dir:/srv/vm
	Runs      []string        `json:"runs"`               // journal.ID of the run for each destination
	Warm      bool            `json:"warm,omitempty"`     // migrated while it runs
	Priority  int             `json:"priority,omitempty"` // higher values are scheduled first
	Disks     int             `json:"disks"`              // number of disks
	Bytes     int64           `json:"bytes"`              // allocated bytes of all disks
	Line      int             `json:"line,omitempty"`     // line of its entry in the plan's text; 0 if unknown
	Column    int             `json:"column,omitempty"`   // column of its entry
	Spec      json.RawMessage `json:"spec,omitempty"`     // planfile.Options for the worker; not in lists

	// current state
	State      State         `json:"state"`
	Step       string        `json:"step,omitempty"`       // step of package migrate's pipeline
	WaitReason string        `json:"waitReason,omitempty"` // reason of a wait, unless it waits for the scheduler
	Worker     string        `json:"worker,omitempty"`     // worker that executes it, or did last
	Storage    []string      `json:"storage,omitempty"`    // ids of the storages that its images are on; empty before Begin
	Epoch      int64         `json:"epoch"`                // epoch of the last claim; 0 if it was never claimed
	Requested  TransferKind  `json:"requested,omitempty"`  // requested transfer; NoTransfer if none
	Granted    bool          `json:"granted,omitempty"`    // the VM has its transfer slots
	Since      time.Time     `json:"since,omitzero"`       // time of the grant; zero without slots
	Expected   time.Duration `json:"expected,omitempty"`   // expected duration of the requested or granted transfer
	Command    Command       `json:"command,omitempty"`    // command for this VM; see Command.Within
	Rehearse   *Rehearsal    `json:"rehearse,omitempty"`   // pending request for a rehearsal
	Attempts   int           `json:"attempts,omitempty"`   // failed attempts since the last retry command
	NotBefore  time.Time     `json:"notBefore,omitzero"`   // earliest time of the next attempt
	Began      time.Time     `json:"began,omitzero"`       // when its first attempt began; zero if none did
	Ended      time.Time     `json:"ended,omitzero"`       // when it ended; zero while it is active
	Failure    *Failure      `json:"failure,omitempty"`    // failure of the last attempt; nil if it had none
	Rev        int64         `json:"rev"`                  // revision of the last change

	signed signedVM // signed columns; only VMs.Get sets them
}

// State is the state of a VM of a plan.
type State string

// The states of a VM.
const (
	Queued   State = "queued"   // no worker executes it: it waits for a slot, or for its next attempt
	Assigned State = "assigned" // a worker will execute it
	Running  State = "running"  // a worker executes it
	Stranded State = "stranded" // its worker has ended and has its images: it waits for that worker
	Done     State = "done"     // published
	Failed   State = "failed"   // an attempt failed for a permanent reason, or too many failed
	Canceled State = "canceled" // canceled, and its results removed
)

// IsFinal reports whether the VM stays in this state unless a user retries it.
func (s State) IsFinal() bool { return s == Done || s == Failed || s == Canceled }

// TransferKind is the kind of transfer that a VM requests; the values are those of package sched.
type TransferKind string

// Kinds of transfers.
const (
	NoTransfer TransferKind = ""        // no transfer is requested
	First      TransferKind = "first"   // nothing of the VM was copied yet
	Again      TransferKind = "again"   // a warm round, or a copy that continues
	Cutover    TransferKind = "cutover" // the VM is about to be powered off
)

// VMs are the VMs of all plans.
type VMs struct {
	db     *database // connections, shared with the other parts
	signer signer    // signs listings
}

// vmColumns are the columns that scanVM reads.
const vmColumns = `plan, vm, seq, warm, listing, state, step, waits, worker, storage, epoch, asks, holds, since, expected,
	ord, rehearse, attempts, not_before, began, ended, failure, rev`

// listing is the constant data of a VM that no query selects by, as JSON. Its fields are those of VM.
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

// listingOf returns the listing of v.
func listingOf(v VM) listing {
	return listing{v.Name, v.Source, v.Host, v.Datastore, v.To, v.Runs, v.Priority, v.Disks, v.Bytes, v.Line, v.Column}
}

// copyTo sets the fields of v from the listing.
func (l listing) copyTo(v *VM) {
	v.Name, v.Source, v.Host, v.Datastore, v.To, v.Runs = l.Name, l.Source, l.Host, l.Datastore, l.To, l.Runs
	v.Priority, v.Disks, v.Bytes, v.Line, v.Column = l.Priority, l.Disks, l.Bytes, l.Line, l.Column
}

// scanVM reads a VM from vmColumns. A document that is no valid JSON is fault.Corrupt.
func scanVM(row scanner) (VM, error) {
	var v VM
	var listed, storage, rehearse, failure string
	var since, notBefore, began, ended int64
	err := row.Scan(&v.Plan, &v.VM, &v.Seq, &v.Warm, &listed, &v.State, &v.Step, &v.WaitReason, &v.Worker, &storage, &v.Epoch, &v.Requested, &v.Granted, &since,
		&v.Expected, &v.Command, &rehearse, &v.Attempts, &notBefore, &began, &ended, &failure, &v.Rev)
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

// batch is the number of VMs in one statement: one or two megabytes of parameters.
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

// vmInserter is a call of VMs.Add. Each VM has a separate revision, so that followers can read in
// parts.
type vmInserter struct {
	*tx
	signer signer               // signs the listings
	rev    int64                // revision of the last VM that was added
	plans  map[string]*planTail // state of the plans of the VMs, by name
}

// planTail is the state of a plan that its new VMs start from.
type planTail struct {
	plan  Plan  // the plan, with its signature
	seq   int64 // highest Seq of its VMs
	state State // state of new VMs: Queued, or Canceled in a canceled plan
	ended int64 // end of new VMs in microseconds; 0 for queued ones
}

// addBatch adds some VMs with one statement.
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
		if v.State == Failed && state == Queued { // the plan names the VM, and the source does not have it
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

// tailOf returns the planTail of a plan. It reads it on the first call.
func (a *vmInserter) tailOf(plan string) (*planTail, error) {
	if t := a.plans[plan]; t != nil {
		return t, nil
	}
	p, err := a.requirePlan(plan)
	if err != nil {
		return nil, err
	}
	t := &planTail{plan: p, state: Queued}
	if p.Command.Undoes() {
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

// oneVM returns a VM without its Spec. It returns sql.ErrNoRows if the VM does not exist.
func oneVM(ctx context.Context, t *sql.Tx, k Key) (VM, error) {
	return scanVM(t.QueryRowContext(ctx, `SELECT `+vmColumns+` FROM vms WHERE plan = $1 AND vm = $2`, k.Plan, k.VM))
}

// readVM is oneVM, but returns fault.NotFound if the VM does not exist.
func (x *tx) readVM(k Key) (VM, error) {
	v, err := oneVM(x.ctx, x.Tx, k)
	if errors.Is(err, sql.ErrNoRows) {
		err = noVMError(k)
	}
	return v, err
}

// noVMError returns the fault.NotFound for a VM.
func noVMError(k Key) error {
	return fault.New(fault.NotFound, "VM %s does not exist in plan %s", k.VM, k.Plan).WithHint("list its VMs: decamp status %s --all", fault.Quote(k.Plan))
}

// Query selects VMs; a zero field selects all.
type Query struct {
	Plan   string  // VMs of this plan; "" for all plans
	States []State // VMs in one of these states; empty for all states
	Worker string  // VMs that this worker executes, or did last; "" for all
	After  int64   // Seq of the last VM of the previous page; used with Plan only
	Limit  int     // maximum number of VMs; 0 for all
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

// whereClause returns the end of the SELECT statement for q, and its parameters.
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

// signedVM are the columns of a VM that its signature covers, as the database stores them.
type signedVM struct {
	listing   string // listing as JSON
	spec      string // Spec as JSON
	signature string // signature; "" if the VM was added without a key
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
// VM executes it once. It is valid until it has a result or is withdrawn. Withdrawing it ends a running
// rehearsal.
type Rehearsal struct {
	ID       string        `json:"id"`                 // unique id, chosen by the caller
	Expect   string        `json:"expect,omitempty"`   // text that shows that the guest is up, in addition to the known signs
	Deadline time.Duration `json:"deadline,omitempty"` // time limit of the guest; 0 is the default
}
