package sqlitedb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A syncer makes a log durable for many at once.
type syncer struct {
	path string
	data func(path string) error // replaced by tests

	turn sync.Mutex // held by the one who syncs

	mu     sync.Mutex
	next   *batch // batch whose sync has not begun
	broken error  // the first sync that failed
}

// A batch is those who wait for the same sync.
type batch struct {
	hasLeader bool          // one of them makes it
	done      chan struct{} // closed when it is over
	err       error
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

func newSyncer(path string) syncer { return syncer{path: path, data: fdatasync, next: newBatch()} }

// waitSynced returns once all that was in the log when it was called is on the medium.
func (s *syncer) waitSynced() error {
	s.mu.Lock()
	b := s.next
	leads := !b.hasLeader
	b.hasLeader = true
	s.mu.Unlock()
	if leads {
		s.syncBatch(b)
	}
	<-b.done
	return b.err
}

// syncBatch waits for the sync that is under way, which may have begun too early for b, and makes the
// next one. Who comes once it has begun is of the batch after that.
func (s *syncer) syncBatch(b *batch) {
	defer close(b.done)
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	s.next, b.err = newBatch(), s.broken
	s.mu.Unlock()
	if b.err != nil {
		return
	}
	if b.err = s.data(s.path); b.err != nil {
		s.mu.Lock()
		s.broken = b.err
		s.mu.Unlock()
	}
}

// fdatasync makes the content of a file durable. A missing file is an empty log: the last connection
// that closed made its content durable.
func fdatasync(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if err != nil {
		err = fmt.Errorf("sync %s: %w", path, err)
	}
	return errors.Join(err, f.Close())
}
