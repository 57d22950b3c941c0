package leftover

import (
	"context"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// NewShared returns a store whose records processes share, so that what one changed on a host
// another can put back. owner is this process's name among them, the same after a restart; gone
// reports whether one of them will not put back its own: it is nil where only owner's are to be.
//
// PutBack leaves alone what is in use: what others that are not gone changed, and what this process
// did itself.
func NewShared(k Keeper, owner string, gone func(owner string) bool) *Store {
	if gone == nil {
		gone = func(string) bool { return false }
	}
	return &Store{keeper: k, patience: patience, owner: owner, gone: gone, used: map[ID]bool{}}
}

// abandoned reports whether nobody uses what r tells of.
func (s *Store) abandoned(r Record) bool {
	if s.owner == "" {
		return true // the state folder's lock says so
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.used[r.ID()] && (r.Owner == "" || r.Owner == s.owner || s.gone(r.Owner))
}

// use marks what this process changes, or does not any more.
func (s *Store) use(id ID, on bool) {
	if s.owner == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.used[id] = true
	} else {
		delete(s.used, id)
	}
}

const (
	// patience is how long a lost database is waited for. What changes a host may be stopped by
	// then, and puts it back all the same: so it is nobody's context that ends this.
	patience = 30 * time.Second

	retryPause = 500 * time.Millisecond
)

// keep does one thing with the keeper, again where that is out of reach.
func (s *Store) keep(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	defer cancel()
	for {
		err := do(ctx)
		if !fault.Is(err, fault.Unreachable) {
			return err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return err
		}
	}
}
