package oncrpc

import (
	"context"
	"hash/crc32"
	"net/netip"
	"slices"
	"sync"
)

// A Cache remembers the replies of the last calls, so that one that is sent again gets the
// same reply and is not done again. Procedures may share a Cache; those that are called
// very often should not share it with those that are not.
type Cache struct {
	mu      sync.Mutex
	entries map[cacheKey]*cached
	ring    []cacheKey // in the order they came; the oldest is overwritten
	oldest  int
}

// cacheKey tells calls apart. The xid alone does not: clients begin anew at any number.
type cacheKey struct {
	peer                        netip.Addr
	xid, program, version, proc uint32
	sum                         uint32 // of the call's first bytes
}

// cached is one call. done is closed when reply is there, or stays nil for ever.
type cached struct {
	done  chan struct{}
	reply []byte // with its record mark; nil: it was not answered
}

// NewCache returns a Cache of n calls. An entry takes about 400 bytes.
func NewCache(n int) *Cache {
	return &Cache{entries: make(map[cacheKey]*cached), ring: make([]cacheKey, 0, n)}
}

func keyOf(c *Call, head []byte) cacheKey {
	return cacheKey{
		peer: c.Peer.Addr(), xid: c.XID, program: c.Program, version: c.Version, proc: c.Procedure,
		sum: crc32.ChecksumIEEE(head),
	}
}

// begin returns the call's entry, and whether the caller is the first and has to do it.
func (c *Cache) begin(key cacheKey) (entry *cached, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		return e, false
	}
	c.remember(key)
	e := &cached{done: make(chan struct{})}
	c.entries[key] = e
	return e, true
}

// remember makes room for a key. c.mu is held.
func (c *Cache) remember(key cacheKey) {
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
func (c *Cache) finish(key cacheKey, e *cached, reply []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.reply = slices.Clone(reply)
	if reply == nil && c.entries[key] == e {
		delete(c.entries, key)
	}
	close(e.done)
}

// wait returns the reply of a call that somebody else is doing; nil if there is none.
func (e *cached) wait(ctx context.Context) []byte {
	select {
	case <-e.done:
		return e.reply
	case <-ctx.Done():
		return nil
	}
}
