package writebehind

import (
	"sync"

	"github.com/decamp/decamp/internal/fault"
)

// A lifecycle knows whether the file may still be read and written, and the goroutines that
// Close waits for. The file's mu guards all but failed, which may be received from at any
// time. fail and abandon take the pool's mutex.
type lifecycle struct {
	table   *chunkTable
	pool    *Pool
	account *account

	failed chan struct{} // closed with mu once nothing is written any more
	group  sync.WaitGroup
	sealed bool  // set by Finish
	closed bool  // set by Close
	err    error // the first one of the target or the log
}

// isOver reports whether nothing is written any more.
func (l *lifecycle) isOver() bool {
	select {
	case <-l.failed:
		return true
	default:
		return false
	}
}

// checkReadable returns why nothing can be read, if so. It needs mu.
func (l *lifecycle) checkReadable() error {
	switch {
	case l.err != nil:
		return l.err
	case l.closed:
		return fault.New(fault.Conflict, "the disk is closed").WithHint("open it again")
	}
	return nil
}

// checkWritable returns why nothing can be written, if so. It needs mu.
func (l *lifecycle) checkWritable() error {
	if err := l.checkReadable(); err != nil {
		return err
	}
	if l.sealed {
		return fault.New(fault.Conflict, "the disk is finished").WithHint("write to another one")
	}
	return nil
}

// fail makes err stick. It needs mu.
func (l *lifecycle) fail(err error) {
	if l.err == nil {
		l.err = err
	}
	l.stopWriting()
}

// stopWriting drops the data in memory, and wakes all waiters. mu must be held.
func (l *lifecycle) stopWriting() {
	if l.isOver() {
		return
	}
	close(l.failed)
	l.table.dropAll()
	l.pool.shutAccount(l.account)
}

// inBackground runs do in a goroutine that Close waits for. It needs mu.
func (l *lifecycle) inBackground(do func()) {
	if l.closed {
		return
	}
	l.group.Go(do)
}
