package cleanup

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// NewShared returns a store whose records processes share, so that one can revert the changes of
// another. owner is this process's name, the same after a restart. gone reports whether a process will
// not revert its own changes; nil reverts only those of owner.
//
// Restore leaves changes in use alone: those of other processes that are not gone, and those of this
// process that it has not released (Release).
func NewShared(k Keeper, owner string, gone func(owner string) bool) *Store {
	if gone == nil {
		gone = func(string) bool { return false }
	}
	return &Store{keeper: k, retryLimit: retryLimit, owner: owner, isGone: gone, used: map[ID]bool{}, undoing: map[ID]chan struct{}{}}
}

// Release reports that this process does not need a change any more, but could not revert it. The
// record stays, and Restore may revert it.
func (s *Store) Release(id ID) { s.markUsed(id, false) }

// Abandoned returns the servers with records that Restore would revert. It does not retry if the
// database is unreachable.
func (s *Store) Abandoned(ctx context.Context) ([]string, error) {
	all, err := s.keeper.All(ctx)
	list, unread := s.parseAll(all)
	err = errors.Join(err, unread)
	var servers []string
	for _, r := range list {
		if s.owner == "" || s.isFree(r) {
			servers = append(servers, r.Server)
		}
	}
	slices.Sort(servers)
	return slices.Compact(servers), err
}

// beginUndo reports whether the change of r is unused. If so, the caller may revert it until it calls
// done.
func (s *Store) beginUndo(r Record) (done func(), free bool) {
	if s.owner == "" { // the lock of the state folder ensures it, except for records that are held
		lock, err := s.lockRecord(r.ID())
		if errors.Is(err, errLocked) || errors.Is(err, fs.ErrNotExist) {
			return nil, false
		}
		return func() { _ = lock.Close() }, true
	}
	ours := s.isOurs(r) // queries before anything is locked
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.ID()
	if !ours || s.isBusy(id) {
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

// isFree reports whether the change of r is unused.
func (s *Store) isFree(r Record) bool {
	if !s.isOurs(r) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.isBusy(r.ID())
}

// isOurs reports whether no other process will revert r. It may query the database, so mu must not be
// held.
func (s *Store) isOurs(r Record) bool {
	return r.Owner == "" || r.Owner == s.owner || s.isGone(r.Owner)
}

// isBusy reports whether this process uses or reverts a change. mu must be held.
func (s *Store) isBusy(id ID) bool { return s.used[id] || s.undoing[id] != nil }

// markUsed sets or removes the mark that this process uses a change, and returns the previous mark. It
// waits for the end of a revert: otherwise a record that is removed after a new change would hide it.
func (s *Store) markUsed(id ID, on bool) (before bool) {
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
	// time limit for a database that is unreachable. It applies also after the caller's context has ended,
	// because a stopped process still reverts its changes.
	retryLimit = 30 * time.Second

	retryPause = 500 * time.Millisecond // time between two attempts
)

// withRetry calls do until it returns something else than fault.Unreachable, or the time limit is
// reached.
func (s *Store) withRetry(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.retryLimit)
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
