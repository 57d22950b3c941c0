package sqlitedb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A syncer syncs a log for many goroutines at once. It is safe for concurrent use.
type syncer struct {
	path string                  // path of the log
	data func(path string) error // makes a file durable; tests replace it

	syncMu sync.Mutex // held during a sync; locked before mu

	mu     sync.Mutex // guards the fields below
	next   *batch     // batch whose sync has not begun
	broken error      // error of the first sync that failed; nil if all succeeded
}

// A batch is the goroutines that wait for the same sync.
type batch struct {
	hasLeader bool          // one of them has begun the sync
	done      chan struct{} // closed at the end of the sync
	err       error         // result of the sync; valid when done is closed
}

// newBatch returns a batch without goroutines.
func newBatch() *batch { return &batch{done: make(chan struct{})} }

// newSyncer returns a syncer of the log at path.
func newSyncer(path string) syncer { return syncer{path: path, data: fdatasync, next: newBatch()} }

// waitSynced returns when all data that was in the log before the call is on the medium. After an error
// it fails in every later call.
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

// syncBatch waits for the running sync, which may have begun too early for b, and makes the next one.
// Goroutines that come after it has begun belong to the next batch.
func (s *syncer) syncBatch(b *batch) {
	defer close(b.done)
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
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

// fdatasync makes the content of a file durable. A missing file is an empty log: the connection that
// closed last made its content durable.
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
