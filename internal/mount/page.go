package mount

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
)

// page is a part of a file in memory: one of the cache's pages or blocks. The bytes from base to filled
// are there, those up to limit are being read. The cache's lock guards its fields, except for the
// bytes: those before filled never change while the page has users.
type page struct {
	store *pageStore
	key   pageKey
	owner *stream // stream that requested it; nil for blocks
	buf   []byte
	start int64 // position of the page in the file; buf[0]
	end   int64 // end of the page, or of the file

	base, filled, limit int64
	err                 error
	filling             bool // a goroutine fills it
	refs                int  // replies that point into it, and readers that wait
	served              int64
	used                int64 // last use, by the cache's count of reads
	gone                bool  // removed from the cache; the memory is freed with its last user

	changed chan struct{} // closed when filled or err changes; nil without waiters
}

type pageKey struct {
	file  *file
	index int64
}

// slice returns the page's memory for r.
func (p *page) slice(r disk.Range) []byte { return p.buf[r.Off-p.start : r.End()-p.start] }

// covers reports whether r is in the page or on its way there.
func (p *page) covers(r disk.Range) bool { return p.base <= r.Off && r.End() <= p.limit }

// isBlock reports whether the page is one of a random reader's.
func (p *page) isBlock() bool { return p.store == p.key.file.cache.blocks }

// isConsumed reports whether all of the page was read once.
func (p *page) isConsumed() bool { return p.limit == p.end && p.served >= p.limit-p.base }

// isIdle reports whether the memory could be used for something else.
func (p *page) isIdle() bool { return p.refs == 0 && !p.filling }

// notifyWaiters wakes those who wait.
func (p *page) notifyWaiters() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// waitFilled returns when the page is filled to end.
func (c *cache) waitFilled(ctx context.Context, p *page, end int64) error {
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

// changeChan returns a channel that is closed at the page's next change; nil if no wait is necessary.
func (c *cache) changeChan(p *page, end int64) (<-chan struct{}, error) {
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

// nextMissing returns the next range to read for a page; ok is false, and filling the page is complete, when
// there is none.
func (c *cache) nextMissing(p *page) (r disk.Range, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.gone || p.filled == p.limit {
		p.filling = false
		c.freeIfUnused(p)
		return disk.Range{}, false
	}
	return disk.Range{Off: p.filled, Len: p.limit - p.filled}, true
}

// addFilled notes n more bytes.
func (c *cache) addFilled(p *page, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.filled += n
	p.notifyWaiters()
}

// failPage ends a page. The next reader of its bytes makes a new request.
func (c *cache) failPage(p *page, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.err, p.filling = err, false
	p.notifyWaiters()
	c.removePage(p)
}

// releasePage ends a reference, by which n bytes were served.
func (c *cache) releasePage(p *page, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.refs--
	p.served += n
	c.freeIfUnused(p)
}
