package cleanup

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// A Hold is a recorded change of a process that does not lock the state folder. No process reverts the
// change until the hold is released or its process has ended, also by kill.
type Hold struct {
	store *Store
	id    ID        // record of the change
	lock  io.Closer // lock of the record; the kernel releases it when the process ends
}

// Hold is Add for a process that does not lock the state folder.
func (s *Store) Hold(r Record) (*Hold, error) {
	for end := time.Now().Add(s.retryLimit); ; time.Sleep(holdPause) {
		id, err := s.Add(r)
		if err != nil {
			return nil, err
		}
		lock, err := s.lockRecord(id)
		if err == nil {
			return &Hold{s, id, lock}, nil
		}
		// another process reverts the record, because it is not locked yet: it is added again
		reverted := errors.Is(err, errLocked) || errors.Is(err, fs.ErrNotExist)
		if !reverted || time.Now().After(end) {
			return nil, errors.Join(fault.New(fault.Denied, "lock the record of %s: %w", r.Text, err), s.Remove(id))
		}
	}
}

// holdPause is the time between two attempts to lock a record.
const holdPause = 20 * time.Millisecond

// Remove durably removes the record of the reverted change, and releases the hold.
func (h *Hold) Remove() error { return errors.Join(h.store.Remove(h.id), h.lock.Close()) }

// Release permits other processes to revert the change, whose record stays.
func (h *Hold) Release() error { return h.lock.Close() }

// errLocked is the error for a record that another process has locked.
var errLocked = errors.New("another process uses the change")

// locker is a Keeper whose records can be locked. A lock ends with its process.
type locker interface {
	// lock locks a record. It returns errLocked if it is locked, and fs.ErrNotExist without a record.
	lock(id ID) (io.Closer, error)
}

// ListLeft is List without the changes that processes hold.
func (s *Store) ListLeft() ([]Record, error) {
	list, err := s.List()
	return slices.DeleteFunc(list, func(r Record) bool {
		lock, err := s.lockRecord(r.ID())
		_ = lock.Close() // nothing was written
		return errors.Is(err, errLocked)
	}), err
}

// lockRecord locks a record until the result is closed, which is never nil. Records that processes share
// have owners and no locks.
func (s *Store) lockRecord(id ID) (io.Closer, error) {
	none := io.NopCloser(nil)
	l, is := s.keeper.(locker)
	if !is {
		return none, nil
	}
	lock, err := l.lock(id)
	if err != nil {
		return none, err
	}
	return lock, nil
}

// lock implements locker with flock on the record's file.
func (f folder) lock(id ID) (io.Closer, error) {
	file, err := os.Open(f.Where(id))
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = checkSameFile(file, f.Where(id))
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errLocked
	}
	if err != nil {
		file.Close() // nothing was written
		return nil, err
	}
	return file, nil
}

// checkSameFile returns fs.ErrNotExist if path is not the open file any more: it was removed or replaced
// before it was locked.
func checkSameFile(file *os.File, path string) error {
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	current, err := os.Stat(path)
	if err == nil && !os.SameFile(opened, current) {
		err = fs.ErrNotExist
	}
	return err
}
