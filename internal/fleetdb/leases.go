package fleetdb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Lease is an exclusive right with an expiry.
type Lease struct {
	Name  string // name of the right, such as "scheduler"
	Owner string // process or worker that has the lease
	// number of the term; it increases when another owner, or the same one after the expiry, gets the
	// lease
	Epoch int64

	// ValidUntil is until when the lease is certainly ours by this process's own clock: the time before the
	// request, plus the length of the lease.
	ValidUntil time.Time
}

// Leases are rights that one process at a time has.
type Leases struct{ db *database }

// Acquire returns the lease of that name for owner. If another owner has it, Acquire returns
// fault.Conflict. A lease of the same owner is renewed; an expired one gets a new epoch.
func (s *Leases) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Lease, error) {
	l := Lease{Name: name, Owner: owner, ValidUntil: time.Now().Add(ttl)}
	err := s.db.write(ctx, "acquire "+name, 0, func(x *tx) error {
		had, until, err := x.lockLease(name)
		if err != nil {
			return err
		}
		alive := until > x.now
		if alive && had.Owner != owner {
			return fault.New(fault.Conflict, "%s is %s's", name, had.Owner).
				WithHint("wait: it is over %s after that process is gone", ttl)
		}
		l.Epoch = had.Epoch
		if !alive {
			l.Epoch++
		}
		return x.setLease(l, ttl)
	})
	if err != nil {
		return Lease{}, err
	}
	return l, nil
}

// lockLease returns the owner of a lease, its epoch, and its expiry in microseconds. The row stays
// locked until the transaction ends: Renew waits for it. A lease that never existed has epoch 0.
func (x *tx) lockLease(name string) (l Lease, until int64, err error) {
	err = x.scanRow(`UPDATE leases SET until = until WHERE name = $1 RETURNING owner, epoch, until`, []any{name}, &l.Owner, &l.Epoch, &until)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return l, until, err
}

// setLease writes the lease, with an expiry of ttl from the time of the transaction.
func (x *tx) setLease(l Lease, ttl time.Duration) error {
	_, err := x.exec(`INSERT INTO leases (name, owner, epoch, until) VALUES ($1, $2, $3, $4)
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, epoch = excluded.epoch, until = excluded.until`,
		l.Name, l.Owner, l.Epoch, x.now+ttl.Microseconds())
	return err
}

// checkLease returns ErrFenced if l has another holder now. An expired lease without a new holder is
// still valid: no other process has acted since.
func (x *tx) checkLease(l Lease) error {
	var his int
	err := x.scanRow(`SELECT count(*) FROM leases WHERE name = $1 AND owner = $2 AND epoch = $3`, []any{l.Name, l.Owner, l.Epoch}, &his)
	if err == nil && his == 0 {
		err = lapsedError(l)
	}
	return err
}

// lapsedError returns the fault.Conflict with ErrFenced for a lease that another process has.
func lapsedError(l Lease) error {
	return fault.New(fault.Conflict, "%s is no longer %s's: %w", l.Name, l.Owner, ErrFenced).WithHint("none is needed: another process continues")
}

// Renew extends a lease to ttl from now, and sets its Sure. If another process has it, Renew returns
// ErrFenced. It waits only for transactions on this lease: otherwise one long transaction would end all
// leases.
func (s *Leases) Renew(ctx context.Context, l *Lease, ttl time.Duration) error {
	sure := time.Now().Add(ttl)
	err := s.db.writeUnordered(ctx, "renew "+l.Name, func(x *tx) error {
		n, err := x.exec(`UPDATE leases SET until = $4 WHERE name = $1 AND owner = $2 AND epoch = $3`, l.Name, l.Owner, l.Epoch, x.now+ttl.Microseconds())
		if err == nil && n == 0 {
			err = lapsedError(*l)
		}
		return err
	})
	if err == nil {
		l.ValidUntil = sure
	}
	return err
}

// Free ends a lease. A lease that another process has is left unchanged.
func (s *Leases) Free(ctx context.Context, l Lease) error {
	return s.db.write(ctx, "free "+l.Name, 0, func(x *tx) error { return x.freeLease(l) })
}

// freeLease ends a lease. It returns errSame if another process has it.
func (x *tx) freeLease(l Lease) error {
	n, err := x.exec(`UPDATE leases SET until = 0 WHERE name = $1 AND owner = $2 AND epoch = $3`, l.Name, l.Owner, l.Epoch)
	if err == nil && n == 0 {
		err = errSame
	}
	return err
}
