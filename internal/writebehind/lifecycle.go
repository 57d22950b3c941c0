package writebehind

import (
	"sync"

	"github.com/decamp/decamp/internal/fault"
)

// A lifecycle records whether the file may be read and written, and the goroutines that Close waits
// for. The file's mu guards all but failed, which may be received from at any time. fail and
// stopWriting lock the pool's mutex.
type lifecycle struct {
	table   *chunkTable // chunks in memory
	pool    *Pool       // pool of the account
	account *account    // the file's account, shut with the first error

	failed chan struct{}  // closed with mu once nothing is written any more
	group  sync.WaitGroup // writers and background work
	sealed bool           // set by Finish
	closed bool           // set by Close
	err    error          // the first one of the target or the log
}

// isOver reports whether nothing is written any more. It needs no lock.
func (l *lifecycle) isOver() bool {
	select {
	case <-l.failed:
		return true
	default:
		return false
	}
}

// checkReadable fails after an error or Close. mu must be held.
func (l *lifecycle) checkReadable() error {
	switch {
	case l.err != nil:
		return l.err
	case l.closed:
		return fault.New(fault.Conflict, "the disk is closed").WithHint("open it again")
	}
	return nil
}

// checkWritable fails after an error, Close or Finish. mu must be held.
func (l *lifecycle) checkWritable() error {
	if err := l.checkReadable(); err != nil {
		return err
	}
	if l.sealed {
		return fault.New(fault.Conflict, "the disk is finished").WithHint("write to another one")
	}
	return nil
}

// fail stores the first error and stops writing. mu must be held.
func (l *lifecycle) fail(err error) {
	if l.err == nil {
		l.err = err
	}
	l.stopWriting()
}

// stopWriting discards the data in memory, and wakes all waiters. mu must be held.
func (l *lifecycle) stopWriting() {
	if l.isOver() {
		return
	}
	close(l.failed)
	l.table.dropAll()
	l.pool.shutAccount(l.account)
}

// inBackground runs do in a goroutine that Close waits for. After Close it does nothing. mu must be
// held.
func (l *lifecycle) inBackground(do func()) {
	if l.closed {
		return
	}
	l.group.Go(do)
}
