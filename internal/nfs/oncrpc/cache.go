package oncrpc

import (
	"context"
	"hash/crc32"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A Cache remembers the replies of the last calls, so that a repeated call gets the same reply and is
// not executed again. Procedures may share a Cache; very frequent ones should not share it with rare
// ones, whose entries they would overwrite. It is safe for concurrent use.
type Cache struct {
	mu      sync.Mutex               // guards the fields below, and reply of each entry until done is closed
	entries map[cacheKey]*cacheEntry // calls in work and their replies
	ring    []*cacheEntry            // entries in order of arrival, deleted ones too; a new one overwrites the oldest
	oldest  int                      // index of the oldest entry, once ring is full
}

// cacheKey identifies a call. The xid alone is not enough: a client may start again at any number.
type cacheKey struct {
	peer                        netip.Addr // address of the client, without its port
	xid, program, version, proc uint32     // fields of the call header
	sum                         uint32     // CRC-32 of the call's first bytes, headBytes at most
	payload                     uint32     // Call.Sum: checksum of a payload, 0 without one
}

// replyLifetime is the time in which a call counts as a repetition. A restarted client may use the same
// numbers for other calls. The Linux server keeps replies as long.
const replyLifetime = 2 * time.Minute

// cacheEntry is one call, in work or answered.
type cacheEntry struct {
	key   cacheKey      // key of the call
	from  *conn         // connection that the call came from
	at    time.Time     // time of arrival
	done  chan struct{} // closed when the call is finished, and reply is set
	reply []byte        // reply with its record mark; nil if the call was not answered
}

// isRepeatedOn reports whether the same call on connection c is a repetition. A client repeats the
// calls of a lost connection. The same call on another connection, while the first one is alive, comes
// from another client on the same host that uses the same numbers.
func (e *cacheEntry) isRepeatedOn(c *conn) bool {
	return time.Since(e.at) < replyLifetime && (e.from == c || e.from.ends.peer == c.ends.peer || !e.from.isAlive())
}

// NewCache returns a Cache of n calls. An entry uses about 400 bytes.
func NewCache(n int) *Cache {
	return &Cache{entries: make(map[cacheKey]*cacheEntry), ring: make([]*cacheEntry, 0, n)}
}

// keyOf returns the key of a call. head is the beginning of its record.
func keyOf(c *Call, head []byte) cacheKey {
	return cacheKey{
		peer: c.Peer.Addr(), xid: c.XID, program: c.Program, version: c.Version, proc: c.Procedure,
		sum: crc32.ChecksumIEEE(head), payload: c.Sum,
	}
}

// begin returns the entry of a call. first reports that the caller must execute the call and then call
// finish; otherwise it waits for the entry.
func (c *Cache) begin(key cacheKey, from *conn) (entry *cacheEntry, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e != nil && e.isRepeatedOn(from) {
		return e, false
	}
	e = &cacheEntry{key: key, from: from, at: time.Now(), done: make(chan struct{})}
	c.addEntry(e)
	return e, true
}

// addEntry adds an entry in place of an earlier one of its key, and deletes the oldest if the ring is
// full. mu must be held.
func (c *Cache) addEntry(e *cacheEntry) {
	if len(c.ring) < cap(c.ring) {
		c.ring = append(c.ring, e)
	} else {
		c.deleteEntry(c.ring[c.oldest])
		c.ring[c.oldest] = e
		c.oldest = (c.oldest + 1) % len(c.ring)
	}
	c.entries[e.key] = e
}

// deleteEntry deletes e from entries, unless a later entry of its key replaced it. mu must be held.
func (c *Cache) deleteEntry(e *cacheEntry) {
	if c.entries[e.key] == e {
		delete(c.entries, e.key)
	}
}

// finish stores a copy of the reply and wakes the waiters. A nil reply deletes the entry: a repetition
// of the call is executed.
func (c *Cache) finish(e *cacheEntry, reply []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.reply = slices.Clone(reply)
	if reply == nil {
		c.deleteEntry(e)
	}
	close(e.done)
}

// wait returns the reply of a call that another goroutine executes. It returns nil if the call was not
// answered or ctx ended.
func (e *cacheEntry) wait(ctx context.Context) []byte {
	select {
	case <-e.done:
		return e.reply
	case <-ctx.Done():
		return nil
	}
}
