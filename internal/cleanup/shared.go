package cleanup

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// NewShared returns a store whose records processes share, so that what one changed on a host
// another can put back. owner is this process's name among them, the same after a restart; gone
// reports whether one of them will not put back its own: it is nil where only owner's are to be.
//
// PutBack leaves alone what is in use: what others that are not gone changed, and what this process
// did itself and has not given up (Release).
func NewShared(k Keeper, owner string, gone func(owner string) bool) *Store {
	if gone == nil {
		gone = func(string) bool { return false }
	}
	return &Store{keeper: k, patience: patience, owner: owner, gone: gone, used: map[ID]bool{}, undoing: map[ID]chan struct{}{}}
}

// Release says that this process is done with a change, but could not put it back. It stays on
// record, and is PutBack's from now on.
func (s *Store) Release(id ID) { s.use(id, false) }

// Abandoned returns the servers of which something is on record that PutBack would undo. It does not
// wait for a database that is out of reach.
func (s *Store) Abandoned(ctx context.Context) ([]string, error) {
	all, err := s.keeper.All(ctx)
	list, unread := s.parseAll(all)
	err = errors.Join(err, unread)
	var servers []string
	for _, r := range list {
		if s.owner == "" || s.free(r) {
			servers = append(servers, r.Server)
		}
	}
	slices.Sort(servers)
	return slices.Compact(servers), err
}

// take reports whether nobody uses what r tells of. It is the caller's to undo until done is called.
func (s *Store) take(r Record) (done func(), free bool) {
	if s.owner == "" {
		return func() {}, true // the state folder's lock says so
	}
	ours := s.ours(r) // asks before anything is locked
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.ID()
	if !ours || s.busy(id) {
		return nil, false
	}
	over := make(chan struct{})
	s.undoing[id] = over
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.undoing, id)
		close(over)
	}, true
}

// free reports whether nobody uses what r tells of.
func (s *Store) free(r Record) bool {
	if !s.ours(r) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.busy(r.ID())
}

// ours reports whether no other process will put r back. It may ask the database who is gone.
func (s *Store) ours(r Record) bool { return r.Owner == "" || r.Owner == s.owner || s.gone(r.Owner) }

// busy reports whether this process uses a change, or is putting it back. The caller has mu.
func (s *Store) busy(id ID) bool { return s.used[id] || s.undoing[id] != nil }

// use marks what this process changes, or does not any more, and returns what was marked before.
// What is being undone is over by then: a record that goes after the host was changed once more
// would hide that.
func (s *Store) use(id ID, on bool) (before bool) {
	if s.owner == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for over := s.undoing[id]; on && over != nil; over = s.undoing[id] {
		s.mu.Unlock()
		<-over
		s.mu.Lock()
	}
	before = s.used[id]
	if on {
		s.used[id] = true
	} else {
		delete(s.used, id)
	}
	return before
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
