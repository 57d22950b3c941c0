package fleetdb

import (
	"sync"
	"time"
)

// pollEvery is the time after which changes by other processes are seen.
const pollEvery = 250 * time.Millisecond

// revisions holds the newest revision that this process knows, and wakes those who wait for a
// newer one. It is safe for concurrent use.
type revisions struct {
	mu     sync.Mutex
	newest int64
	newer  chan struct{} // closed, and replaced, by announce
	polled time.Time     // when the database was last asked for its revision

	poll chan struct{} // held by the one waiter that queries the database for all
}

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

// untilPoll returns the time until the next poll.
func (r *revisions) untilPoll() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Until(r.polled.Add(pollEvery))
}

func (r *revisions) setPolled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.polled = time.Now()
}
