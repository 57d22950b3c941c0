package fleetdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Rehearsed is the state or the result of a Rehearsal.
type Rehearsed struct {
	Rehearsal
	Worker string    `json:"worker,omitempty"` // worker that boots the VM, or did
	Ended  time.Time `json:"ended,omitzero"`   // time by the database's clock; zero while it is pending
	// testboot.Report of a guest that was booted; its files are on the worker
	Report json.RawMessage `json:"report,omitempty"`
	Tail   string          `json:"tail,omitempty"` // last output of the serial port
	// why there is no report, and will be none; nil if there is or may be one
	Failure *Failure `json:"failure,omitempty"`
}

// Rehearsals are requests to boot warm VMs, and the results from workers.
type Rehearsals struct{ db *database }

// Request makes the worker that executes a VM boot it. A second call with the same ID changes
// nothing. If the VM cannot be booted now, or another rehearsal is requested, Request returns
// fault.Conflict.
func (s *Rehearsals) Request(ctx context.Context, k Key, ask Rehearsal) error {
	return s.db.write(ctx, "rehearse "+k.String(), 1, func(x *tx) error {
		v, err := x.readVM(k)
		if err != nil {
			return err
		}
		last, err := lastAnswered(x.ctx, x.Tx, k)
		switch {
		case err != nil:
			return err
		case v.Rehearse != nil && v.Rehearse.ID == ask.ID, last != nil && last.ID == ask.ID:
			return errSame
		}
		if err := x.checkRehearsable(v); err != nil {
			return err
		}
		_, err = x.exec(`UPDATE vms SET rehearse = $1, rev = $2 WHERE plan = $3 AND vm = $4`, toJSON(ask), x.rev, k.Plan, k.VM)
		return err
	})
}

// checkRehearsable returns fault.Conflict with the reason if v cannot be rehearsed now.
func (x *tx) checkRehearsable(v VM) error {
	no := func(why, hint string, args ...any) error {
		return fault.New(fault.Conflict, "VM %s %s", v.Name, why).WithHint(hint, args...)
	}
	p, err := x.requirePlan(v.Plan)
	if err != nil {
		return err
	}
	driven, err := isDriven(x.ctx, x.Tx, v, x.now)
	order, at := v.Command.Within(p.Command), fault.Quote(v.Key.String())
	switch {
	case err != nil:
		return err
	case !v.Warm:
		return no("is not moved warm", "trial: true in its plan boots it before it is published; decamp trial any time after that")
	case v.State == Done:
		return no("is done", "boot the published VM with decamp trial")
	case v.State.IsFinal():
		return no("is "+string(v.State)+": no worker executes it", "start it again with decamp retry %s, then rehearse it", at)
	case order.Undoes():
		return no("is being canceled", "wait until it is, then: decamp retry %s", at)
	case order == CutOver:
		return no("is being cut over", "boot the published VM with decamp trial")
	case v.State == Queued:
		return no("is queued: no worker executes it", "see the reason with decamp status %s; rehearse it when a worker executes it", fault.Quote(v.Plan))
	case !driven:
		return no("belongs to worker "+v.Worker+", which has ended", "start that worker, or rehearse it there with its --state")
	case v.Rehearse != nil:
		return no("is being rehearsed already", "wait for its end")
	}
	return nil
}

// isDriven reports whether a worker with a valid lease executes v. now is the database's time in
// microseconds.
func isDriven(ctx context.Context, t *sql.Tx, v VM, now int64) (bool, error) {
	if v.State != Assigned && v.State != Running {
		return false, nil
	}
	var alive int
	err := t.QueryRowContext(ctx, `SELECT count(*) FROM leases WHERE name = $1 AND until > $2`, workerLease(v.Worker), now).Scan(&alive)
	return alive > 0, err
}

// TakeBack removes the request for a rehearsal, if it has no result yet.
func (s *Rehearsals) TakeBack(ctx context.Context, k Key, rehearsal string) error {
	return s.db.write(ctx, "take back a rehearsal of "+k.String(), 1, func(x *tx) error {
		v, err := x.readVM(k)
		switch {
		case err != nil:
			return err
		case v.Rehearse == nil || v.Rehearse.ID != rehearsal:
			return errSame
		}
		_, err = x.exec(`UPDATE vms SET rehearse = '', rev = $1 WHERE plan = $2 AND vm = $3`, x.rev, k.Plan, k.VM)
		return err
	})
}

// Answer records the result of the rehearsal that is requested for the claim's VM, and ends the
// request. A result for a request that was withdrawn is ignored.
func (s *Rehearsals) Answer(ctx context.Context, c Claim, done Rehearsed) error {
	return s.db.write(ctx, "answer the rehearsal of "+c.Key.String(), 1, func(x *tx) error {
		v, err := x.readVM(c.Key)
		switch {
		case err != nil:
			return err
		case v.Rehearse == nil || v.Rehearse.ID != done.ID:
			return errSame
		}
		if err := x.updateClaimed(c, `rehearse = '', rev = $5`, x.rev); err != nil {
			return err
		}
		done.Rehearsal, done.Worker, done.Ended = *v.Rehearse, c.Worker, fromMicros(x.now)
		return x.putRecord(rehearsals, c.Key.String(), toJSON(done))
	})
}

// List returns the requested rehearsal of a VM and the last answered one, if they exist. A request
// that no worker will answer has a Failure.
func (s *Rehearsals) List(ctx context.Context, k Key) (all []Rehearsed, err error) {
	err = s.db.readTx(ctx, "read the rehearsals of "+k.String(), func(ctx context.Context, t *sql.Tx) error {
		all = []Rehearsed{}
		now, err := s.db.readClock(ctx, t)
		if err != nil {
			return err
		}
		v, err := oneVM(ctx, t, k)
		if err != nil {
			return err
		}
		there, err := isDriven(ctx, t, v, now)
		if v.Rehearse != nil {
			stands := Rehearsed{Rehearsal: *v.Rehearse, Worker: v.Worker}
			if !there {
				stands.Failure = &Failure{
					Kind: fault.Canceled.String(), Text: "the worker that drove VM " + v.Name + " does not any more",
					Hint: "see decamp status " + fault.Quote(k.Plan) + "; rehearse it again when it continues",
				}
			}
			all = append(all, stands)
		}
		last, lastErr := lastAnswered(ctx, t, k)
		if last != nil {
			all = append(all, *last)
		}
		return errors.Join(err, lastErr)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = noVMError(k)
	}
	return all, err
}

// lastAnswered returns the last rehearsal of a VM that has a result; nil if none exists.
func lastAnswered(ctx context.Context, t *sql.Tx, k Key) (*Rehearsed, error) {
	var doc string
	err := t.QueryRowContext(ctx, `SELECT doc FROM records WHERE kind = $1 AND id = $2`, rehearsals, k.String()).Scan(&doc)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	last, err := parseJSON[*Rehearsed](doc)
	if err != nil {
		return nil, fault.New(fault.Corrupt, "the record of the rehearsal of %s: %w", k, err)
	}
	return last, nil
}
