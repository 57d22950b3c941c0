package oncrpc

import (
	"context"
	"hash/crc32"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A Cache remembers the replies of the last calls, so that one that is sent again gets the
// same reply and is not done again. Procedures may share a Cache; those that are called
// very often should not share it with those that are not.
type Cache struct {
	mu      sync.Mutex
	entries map[cacheKey]*cacheEntry
	ring    []cacheKey // in the order they came; the oldest is overwritten
	oldest  int
}

// cacheKey tells calls apart. The xid alone does not: clients begin anew at any number.
type cacheKey struct {
	peer                        netip.Addr
	xid, program, version, proc uint32
	sum                         uint32 // of the call's first bytes
	payload                     uint32 // Call.Sum
}

// remembered is how long a call can be repeated. A client that was started anew may use
// the same numbers for other calls; the Linux server keeps replies as long.
const replyLifetime = 2 * time.Minute

// cached is one call.
type cacheEntry struct {
	from  *conn
	at    time.Time
	done  chan struct{} // closed when reply is there
	reply []byte        // with its record mark; nil: it was not answered
}

// isRepeatedOn reports whether the same call on a connection is a repetition. A client
// sends again what it lost the connection of. The same on another connection while the
// first is well is another client's on the same host, whose numbers happen to be the same.
func (e *cacheEntry) isRepeatedOn(c *conn) bool {
	return time.Since(e.at) < replyLifetime && (e.from == c || e.from.ends.peer == c.ends.peer || !e.from.isAlive())
}

// NewCache returns a Cache of n calls. An entry takes about 400 bytes.
func NewCache(n int) *Cache {
	return &Cache{entries: make(map[cacheKey]*cacheEntry), ring: make([]cacheKey, 0, n)}
}

func keyOf(c *Call, head []byte) cacheKey {
	return cacheKey{
		peer: c.Peer.Addr(), xid: c.XID, program: c.Program, version: c.Version, proc: c.Procedure,
		sum: crc32.ChecksumIEEE(head), payload: c.Sum,
	}
}

// begin returns the call's entry, and whether the caller is the first and has to do it.
func (c *Cache) begin(key cacheKey, from *conn) (entry *cacheEntry, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e != nil && e.isRepeatedOn(from) {
		return e, false
	}
	if e == nil {
		c.addKey(key)
	}
	e = &cacheEntry{from: from, at: time.Now(), done: make(chan struct{})}
	c.entries[key] = e
	return e, true
}

// addKey makes room for a key. c.mu is held.
func (c *Cache) addKey(key cacheKey) {
	if len(c.ring) < cap(c.ring) {
		c.ring = append(c.ring, key)
		return
	}
	delete(c.entries, c.ring[c.oldest])
	c.ring[c.oldest] = key
	c.oldest = (c.oldest + 1) % len(c.ring)
}

// finish keeps the reply of a call that was done. A call without a reply is forgotten:
// its repetition is done.
func (c *Cache) finish(key cacheKey, e *cacheEntry, reply []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.reply = slices.Clone(reply)
	if reply == nil && c.entries[key] == e {
		delete(c.entries, key)
	}
	close(e.done)
}

// wait returns the reply of a call that somebody else is doing; nil if there is none.
func (e *cacheEntry) wait(ctx context.Context) []byte {
	select {
	case <-e.done:
		return e.reply
	case <-ctx.Done():
		return nil
	}
}
