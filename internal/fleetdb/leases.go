package fleetdb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Lease is the right to do something alone until a time.
type Lease struct {
	Name  string
	Owner string
	Epoch int64

	// Sure is until when the lease is certainly still ours by this process's own clock: the
	// moment before it was asked for, and its length.
	Sure time.Time
}

// Leases are rights that one process at a time has.
type Leases struct{ db *database }

// Acquire takes the lease of that name for owner. While another owner has it, that is
// fault.Conflict. One's own is renewed; one that is over is taken with a new epoch.
func (s *Leases) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Lease, error) {
	l := Lease{Name: name, Owner: owner, Sure: time.Now().Add(ttl)}
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

// lockLease returns who has or had a lease, and until when. It stays so until the transaction
// ends: Renew waits.
func (x *tx) lockLease(name string) (l Lease, until int64, err error) {
	err = x.scanRow(`UPDATE leases SET until = until WHERE name = $1 RETURNING owner, epoch, until`, []any{name}, &l.Owner, &l.Epoch, &until)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return l, until, err
}

func (x *tx) setLease(l Lease, ttl time.Duration) error {
	_, err := x.exec(`INSERT INTO leases (name, owner, epoch, until) VALUES ($1, $2, $3, $4)
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, epoch = excluded.epoch, until = excluded.until`,
		l.Name, l.Owner, l.Epoch, x.now+ttl.Microseconds())
	return err
}

// checkLease refuses writes of a former holder of a lease. An expired lease that has no new holder is still
// valid: no other process has acted since.
func (x *tx) checkLease(l Lease) error {
	var his int
	err := x.scanRow(`SELECT count(*) FROM leases WHERE name = $1 AND owner = $2 AND epoch = $3`, []any{l.Name, l.Owner, l.Epoch}, &his)
	if err == nil && his == 0 {
		err = lapsedError(l)
	}
	return err
}

func lapsedError(l Lease) error {
	return fault.New(fault.Conflict, "%s is no longer %s's: %w", l.Name, l.Owner, ErrFenced).WithHint("nothing: another process goes on")
}

// Renew makes a lease last for ttl from now. When another has it, that is ErrFenced. It waits for
// no other transaction but the lease's own: one that takes long would end all leases else.
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
		l.Sure = sure
	}
	return err
}

// Free gives a lease back. One that is another's stays his.
func (s *Leases) Free(ctx context.Context, l Lease) error {
	return s.db.write(ctx, "free "+l.Name, 0, func(x *tx) error { return x.freeLease(l) })
}

func (x *tx) freeLease(l Lease) error {
	n, err := x.exec(`UPDATE leases SET until = 0 WHERE name = $1 AND owner = $2 AND epoch = $3`, l.Name, l.Owner, l.Epoch)
	if err == nil && n == 0 {
		err = errSame
	}
	return err
}
