package mount

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
)

// page is a part of a file in memory: one of the cache's pages or blocks. The bytes from base to filled
// are there, those up to limit are being read. The cache's lock guards its fields, except for the
// bytes: those before filled never change while the page has users.
type page struct {
	home  *store
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

// bytes returns the page's memory for r.
func (p *page) bytes(r disk.Range) []byte { return p.buf[r.Off-p.start : r.End()-p.start] }

// holds reports whether r is in the page or on its way there.
func (p *page) holds(r disk.Range) bool { return p.base <= r.Off && r.End() <= p.limit }

// isBlock reports whether the page is one of a random reader's.
func (p *page) isBlock() bool { return p.home == p.key.file.cache.blocks }

// consumed reports whether all of the page was read once.
func (p *page) consumed() bool { return p.limit == p.end && p.served >= p.limit-p.base }

// idle reports whether the memory could be used for something else.
func (p *page) idle() bool { return p.refs == 0 && !p.filling }

// tell wakes those who wait.
func (p *page) tell() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// wait returns when the page is filled to end.
func (c *cache) wait(ctx context.Context, p *page, end int64) error {
	for {
		changed, err := c.watch(p, end)
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

// watch returns a channel that is closed at the page's next change; nil if no wait is necessary.
func (c *cache) watch(p *page, end int64) (<-chan struct{}, error) {
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

// next returns the next range to read for a page; ok is false, and filling the page is complete, when
// there is none.
func (c *cache) next(p *page) (r disk.Range, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.gone || p.filled == p.limit {
		p.filling = false
		c.reclaim(p)
		return disk.Range{}, false
	}
	return disk.Range{Off: p.filled, Len: p.limit - p.filled}, true
}

// arrived notes n more bytes.
func (c *cache) arrived(p *page, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.filled += n
	p.tell()
}

// failed ends a page. The next reader of its bytes makes a new request.
func (c *cache) failed(p *page, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.err, p.filling = err, false
	p.tell()
	c.remove(p)
}

// release ends a reference, by which n bytes were served.
func (c *cache) release(p *page, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.refs--
	p.served += n
	c.reclaim(p)
}
