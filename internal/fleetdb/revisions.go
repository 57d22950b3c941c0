package fleetdb

import (
	"sync"
	"time"
)

// pollEvery is the time after which changes by other processes are seen.
const pollEvery = 250 * time.Millisecond

// revisions contains the newest revision that this process has seen, and wakes callers that wait for a
// newer one. It is safe for concurrent use.
type revisions struct {
	mu     sync.Mutex    // guards newest, newer and polled
	newest int64         // newest revision that this process has seen
	newer  chan struct{} // closed, and replaced, when newest increases
	polled time.Time     // when the database's revision was last read

	poll chan struct{} // token of the one waiter that queries the database for all
}

// newRevisions returns revisions before the first poll.
func newRevisions() revisions {
	return revisions{newer: make(chan struct{}), poll: make(chan struct{}, 1)}
}

// announce wakes all waiters if rev is newer than the known ones.
func (r *revisions) announce(rev int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rev <= r.newest {
		return
	}
	r.newest = rev
	close(r.newer)
	r.newer = make(chan struct{})
}

// newestKnown returns the newest known revision, and a channel that is closed when there is a newer one.
func (r *revisions) newestKnown() (rev int64, newer <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest, r.newer
}

// untilPoll returns the time until the next poll; not positive if it is due.
func (r *revisions) untilPoll() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Until(r.polled.Add(pollEvery))
}

// setPolled records that the database's revision is being read now.
func (r *revisions) setPolled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.polled = time.Now()
}
