package fleetdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Claim is a worker's right to migrate a VM. Writes with a claim are refused if another worker has a
// newer one.
type Claim struct {
	Key
	Worker string // worker that has the claim
	Epoch  int64  // number of the claim; a later claim on the VM has a higher one
}

// Claims is what workers write about the VMs that they execute. Each write checks the claim in the same
// transaction.
type Claims struct{ db *database }

// claimCondition is the condition under which a claim, $1 to $4, is the newest of its VM.
const claimCondition = ` WHERE plan = $1 AND vm = $2 AND worker = $3 AND epoch = $4 AND state IN ('assigned', 'running')`

// updateClaimed changes the VM of a claim. It returns ErrFenced and changes nothing if the claim is not
// the newest one. Parameters of set start at $5.
func (x *tx) updateClaimed(c Claim, set string, args ...any) error {
	n, err := x.exec(`UPDATE vms SET `+set+claimCondition, append([]any{c.Plan, c.VM, c.Worker, c.Epoch}, args...)...)
	if err != nil || n > 0 {
		return err
	}
	return fencedError(c)
}

// fencedError returns the fault.Conflict with ErrFenced for a claim that is not the newest one.
func fencedError(c Claim) error {
	return fault.New(fault.Conflict, "%s is no longer %s's: %w", c.Key, c.Worker, ErrFenced).
		WithHint("none needed: another worker continues it")
}

// Begin sets the claim's VM to Running, and records the storages of its images. Call it before any
// image is written.
func (s *Claims) Begin(ctx context.Context, c Claim, storage []string) error {
	return s.db.write(ctx, "begin "+c.Key.String(), 1, func(x *tx) error {
		return x.updateClaimed(c, `state = 'running', began = CASE WHEN began = 0 THEN $5 ELSE began END, storage = CASE WHEN $6 = '' THEN storage ELSE $6 END, rev = $7`,
			x.now, toJSON(storage), x.rev)
	})
}

// SetStep records the step of the VM's migration, and why it waits; "" if it does not wait. Unchanged
// values use no revision.
func (s *Claims) SetStep(ctx context.Context, c Claim, step, waits string) error {
	return s.db.writeLoose(ctx, "update "+c.Key.String(), 1, func(x *tx) error {
		var same int
		err := x.scanRow(`SELECT count(*) FROM vms`+claimCondition+` AND step = $5 AND waits = $6`, []any{c.Plan, c.VM, c.Worker, c.Epoch, step, waits}, &same)
		if err != nil {
			return err
		}
		if same > 0 {
			return errSame
		}
		return x.updateClaimed(c, `step = $5, waits = $6, rev = $7`, step, waits, x.rev)
	})
}

// RequestTransfer requests a transfer for the VM, of the expected duration. The scheduler grants it by setting
// VM.Granted.
func (s *Claims) RequestTransfer(ctx context.Context, c Claim, stage TransferKind, expected time.Duration) error {
	return s.db.writeLoose(ctx, "request a transfer for "+c.Key.String(), 1, func(x *tx) error {
		return x.updateClaimed(c, `asks = $5, expected = $6, holds = FALSE, since = 0, rev = $7`, stage, toNanos(expected), x.rev)
	})
}

// EndTransfer ends the transfer of the VM, or its request for one.
func (s *Claims) EndTransfer(ctx context.Context, c Claim) error {
	return s.db.writeLoose(ctx, "give back for "+c.Key.String(), 1, func(x *tx) error {
		return x.updateClaimed(c, `asks = '', expected = 0, holds = FALSE, since = 0, rev = $5`, x.rev)
	})
}

// End is the outcome of a claim.
type End struct {
	State     State     // Done, Failed or Canceled; Queued if it will be tried again, or continues elsewhere
	Failure   *Failure  // error of this attempt; nil does not count as a failure
	NotBefore time.Time // earliest time of the next attempt, by the database's clock
	Further   bool      // the attempt made more progress than earlier ones: their failures do not count any more
	Uncounted bool      // Failure is reported, and does not count as an attempt
	Summary   Summary   // result of a VM that is Done
}

// Finish ends a claim, records the outcome and counts it. A second call changes nothing.
func (s *Claims) Finish(ctx context.Context, c Claim, end End) error {
	if end.State != Queued && !end.State.IsFinal() {
		return fmt.Errorf("finish %s: %s is no end", c.Key, end.State)
	}
	return s.db.write(ctx, "finish "+c.Key.String(), 1, func(x *tx) error {
		said, err := x.hasEnded(c, end.State)
		if err != nil {
			return err
		}
		if said {
			return errSame
		}
		failed, ended := 0, x.now
		if end.Failure != nil && !end.Uncounted {
			failed = 1
		}
		if end.State == Queued {
			ended = 0
		}
		if _, err := x.exec(`DELETE FROM progress WHERE plan = $1 AND vm = $2`, c.Plan, c.VM); err != nil { // progress exists only during an attempt
			return err
		}
		var warm bool
		var began int64
		err = x.scanRow(`SELECT warm, began FROM vms`+claimCondition, []any{c.Plan, c.VM, c.Worker, c.Epoch}, &warm, &began)
		if errors.Is(err, sql.ErrNoRows) {
			return fencedError(c)
		}
		if err := errors.Join(err, x.countEnd(end, warm, began)); err != nil {
			return err
		}
		return x.updateClaimed(c, `state = $5, asks = CASE WHEN $5 <> 'queued' THEN '' WHEN began > 0 THEN 'again' ELSE 'first' END, expected = 0, holds = FALSE, since = 0, waits = '', rehearse = '',
			storage = CASE WHEN $5 = 'canceled' THEN '' ELSE storage END, attempts = CASE WHEN $11 THEN 0 ELSE attempts END + $6, ended = $7, failure = $8, not_before = $9, rev = $10`,
			end.State, failed, ended, toJSON(end.Failure), toMicros(end.NotBefore), x.rev, end.Further)
	})
}

// hasEnded reports whether the claim has ended in this state already: the worker repeats the call after
// a lost response.
func (x *tx) hasEnded(c Claim, state State) (bool, error) {
	var n int
	err := x.scanRow(`SELECT count(*) FROM vms WHERE plan = $1 AND vm = $2 AND worker = $3 AND epoch = $4 AND state = $5`,
		[]any{c.Plan, c.VM, c.Worker, c.Epoch, state}, &n)
	return n > 0, err
}
