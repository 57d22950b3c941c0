package readahead

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
)

// A page is a part of a file in memory: one of the cache's pages or blocks. The bytes from base to
// filled are valid, and those up to limit are being read. The cache's lock guards its fields, but not
// the bytes: those before filled do not change while the page has users.
type page struct {
	store *pageStore // store that the memory belongs to
	key   pageKey    // file and position
	owner *stream    // stream that requested it; nil for blocks
	buf   []byte     // memory of the page; nil after it was freed
	start int64      // position of the page in the file; buf[0]
	end   int64      // end of the page, or of the file

	base, filled, limit int64
	err                 error // why the page could not be filled
	filling             bool  // a goroutine is filling it
	refs                int   // number of views of it, and of readers that wait for it
	served              int64 // number of bytes that were read from it, with its holes
	used                int64 // time of the last use, in Cache.reads
	ownerReads          int   // number of the owner's reads at the last use
	gone                bool  // removed from the cache; its last user frees the memory

	changed chan struct{} // closed when filled or err changes; nil without waiters
}

// A pageKey identifies a page or block of a store.
type pageKey struct {
	file  *File // file of the page
	index int64 // offset in the file divided by the size of a page
}

// slice returns the page's memory for r.
func (p *page) slice(r disk.Range) []byte { return p.buf[r.Off-p.start : r.End()-p.start] }

// covers reports whether r is in the page or will be.
func (p *page) covers(r disk.Range) bool { return p.base <= r.Off && r.End() <= p.limit }

// isBlock reports whether the page is a block of a random reader.
func (p *page) isBlock() bool { return p.store == p.key.file.cache.blocks }

// isConsumed reports whether all bytes of the page were read once.
func (p *page) isConsumed() bool { return p.limit == p.end && p.served >= p.limit-p.base }

// isIdle reports whether the page has no users, so that its memory could be reused.
func (p *page) isIdle() bool { return p.refs == 0 && !p.filling }

// notifyWaiters wakes the readers that wait for the page.
func (p *page) notifyWaiters() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// waitFilled returns when the page is filled up to offset end of the file, or fails with the error of
// the page. mu must not be held.
func (c *Cache) waitFilled(ctx context.Context, p *page, end int64) error {
	for {
		changed, err := c.changeChan(p, end)
		if changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// changeChan returns a channel that is closed at the page's next change. It returns nil if the page is
// filled up to end or has failed. mu must not be held.
func (c *Cache) changeChan(p *page, end int64) (<-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.filled >= end {
		return nil, nil
	}
	if p.err != nil {
		return nil, p.err
	}
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed, nil
}

// isFilled reports whether the page is filled up to offset end of the file. mu must not be held.
func (c *Cache) isFilled(p *page, end int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.filled >= end
}

// limitOf returns the end of the bytes of p that are being read. mu must not be held.
func (c *Cache) limitOf(p *page) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.limit
}

// nextMissing returns the next range to read for a page. If there is none, ok is false and filling has
// ended. mu must not be held.
func (c *Cache) nextMissing(p *page) (r disk.Range, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.gone || p.filled == p.limit {
		p.filling = false
		c.freeIfUnused(p)
		return disk.Range{}, false
	}
	return disk.Range{Off: p.filled, Len: p.limit - p.filled}, true
}

// addFilled records that n more bytes of the page are valid. mu must not be held.
func (c *Cache) addFilled(p *page, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.filled += n
	p.notifyWaiters()
}

// addHole records that the next n bytes of the page are a hole. Reads of holes alone do not use the
// page. mu must not be held.
func (c *Cache) addHole(p *page, n int64) {
	c.addFilled(p, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	p.served += n
}

// failPage removes a page that could not be filled. The next read of its bytes makes a new request. mu
// must not be held.
func (c *Cache) failPage(p *page, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.err, p.filling = err, false
	p.notifyWaiters()
	c.removePage(p)
}

// releasePage releases a reference; n bytes were replied from the page. mu must not be held.
func (c *Cache) releasePage(p *page, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.refs--
	p.served += n
	c.freeIfUnused(p)
}
