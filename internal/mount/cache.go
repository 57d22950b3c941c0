package mount

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/disk"
)

// cache is the memory of one mount, shared by all files that are open.
type cache struct {
	now func() time.Time

	mu      sync.Mutex // never held across I/O
	pages   *pageStore
	blocks  *pageStore
	streams []*stream // streams of all files
	reads   int64
}

func newCache(o Options) *cache {
	return &cache{now: o.Now, pages: newPageStore(o.PageSize, o.Pages), blocks: newPageStore(blockSize, blocks)}
}

// noteRead takes note of a read and reads ahead where that is worth it. It returns the page
// that holds r, with a reference to it; nil if none does.
func (c *cache) noteRead(f *file, r disk.Range) *page {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	known := c.lookup(c.pages, f, r) != nil
	s := c.streamOf(f, r, known)
	forward := s.end < r.End()
	s.addRead(r, c.now())
	c.mergeStreams(s)
	if forward && s.isSequential() {
		if !known {
			s.ahead = min(s.ahead, r.Off) // the pages there were freed
		}
		c.readAhead(s, r)
	}
	return c.holdPage(c.pages, f, r)
}

// streamOf returns the stream that r belongs to.
func (c *cache) streamOf(f *file, r disk.Range, known bool) *stream {
	var oldest *stream
	own := 0
	for _, s := range c.streams {
		if s.file != f {
			continue
		}
		if s.isNear(r, known) || r.Off > s.end && s.isSequential() && f.isZero(disk.Range{Off: s.end, Len: r.Off - s.end}) {
			if r.Off > s.end && s.isSequential() {
				s.end = r.Off // the hole in between was skipped, not jumped over
			}
			return s
		}
		own++
		if oldest == nil || s.last.Before(oldest.last) {
			oldest = s
		}
	}
	if own >= streamsPerFile {
		c.dropStream(oldest)
	}
	s := &stream{file: f, start: r.Off, end: r.Off, ahead: r.Off, last: c.now()}
	c.streams = append(c.streams, s)
	return s
}

// mergeStreams joins the streams that turn out to be one reader.
func (c *cache) mergeStreams(s *stream) {
	for _, t := range slices.Clone(c.streams) {
		if t == s || t.file != s.file || !s.overlaps(t) {
			continue
		}
		s.mergeFrom(t)
		c.moveOwnership(t, s)
		c.dropStream(t)
	}
}

// moveOwnership gives the pages of one stream to another.
func (c *cache) moveOwnership(from, to *stream) {
	for _, p := range c.pages.pages {
		if p.owner == from {
			p.owner = to
		}
	}
}

// dropStream drops a stream. Its pages stay until their memory is wanted.
func (c *cache) dropStream(s *stream) {
	c.streams = slices.DeleteFunc(c.streams, func(t *stream) bool { return t == s })
}

// isAlive reports whether pages should be kept for s.
func (c *cache) isAlive(s *stream) bool {
	return s != nil && slices.Contains(c.streams, s) && c.now().Sub(s.last) < stale
}

// pageShare is how many pages each sequential reader may have.
func (c *cache) pageShare() int {
	readers := 0
	for _, s := range c.streams {
		if s.isSequential() && c.isAlive(s) {
			readers++
		}
	}
	return max(c.pages.most/max(readers, 1), 2)
}

// readAhead requests pages from the read r on, up to the end of the stream's window.
func (c *cache) readAhead(s *stream, r disk.Range) {
	size := c.pages.size
	window := s.aheadWindow(c.pageShare(), size)
	target := min(s.end+window, s.file.size)
	if window >= 2*size && target < s.file.size {
		target -= target % size // whole pages, once they are many
	}
	at := max(s.ahead, r.Off)
	if target-at < min(window/2, size) && target < s.file.size && at >= r.End() {
		return // little is missing: one larger request later is better
	}
	for at < target {
		next := min((at/size+1)*size, target)
		if !c.requestPage(s, disk.Range{Off: at, Len: next - at}) {
			break
		}
		at = next
	}
	s.ahead = max(s.ahead, at)
}

// requestPage has r, which lies in one page, fetched. It reports false when there is no memory.
func (c *cache) requestPage(s *stream, r disk.Range) bool {
	f, size := s.file, c.pages.size
	key := pageKey{f, r.Off / size}
	if f.isZero(r) {
		return true
	}
	p := c.pages.pages[key]
	if p == nil {
		buf := c.takeMemory()
		if buf == nil {
			return false
		}
		p = c.insertPage(c.pages, key, buf, r)
		p.owner = s
	}
	if r.Off <= p.limit {
		p.limit = max(p.limit, r.End())
	}
	c.startFill(p)
	return true
}

// insertPage makes a page that will hold r.
func (c *cache) insertPage(in *pageStore, key pageKey, buf []byte, r disk.Range) *page {
	start := key.index * in.size
	p := &page{
		store: in, key: key, buf: buf, start: start, end: min(start+in.size, key.file.size),
		base: r.Off, filled: r.Off, limit: r.End(), used: c.reads,
	}
	in.pages[key] = p
	return p
}

// startFill fills p, unless it is being filled.
func (c *cache) startFill(p *page) {
	if !p.filling && p.filled < p.limit {
		p.filling = true
		p.key.file.fills.Go(func() { p.key.file.fillPage(p) })
	}
}

// takeMemory returns memory for a page: unused, or that of the least useful page.
func (c *cache) takeMemory() []byte {
	if buf := c.pages.takeFree(); buf != nil {
		return buf
	}
	victim := c.leastUseful()
	if victim == nil {
		return nil
	}
	c.removePage(victim)
	return c.pages.takeFree()
}

// leastUseful picks the page that is missed least: one that was consumed, then one of a reader
// that is gone, then one that its reader has left far behind. Of what a reader will want
// soon nothing is taken: the readers' windows shrink as their number grows.
func (c *cache) leastUseful() *page {
	var best *page
	worst := 1
	for _, p := range c.pages.pages {
		if !p.isIdle() {
			continue
		}
		r := c.evictionRank(p)
		if r > worst || r == worst && (best == nil || p.used < best.used) {
			best, worst = p, r
		}
	}
	return best
}

// evictionRank is 0 for pages that stay.
func (c *cache) evictionRank(p *page) int {
	switch {
	case p.isConsumed():
		return 3
	case !c.isAlive(p.owner):
		return 2
	case p.end+c.keptBehind() < p.owner.end:
		return 1
	}
	return 0
}

// keptBehind returns the bytes kept behind a reader's furthest read.
func (c *cache) keptBehind() int64 { return min(mostDisorder, int64(c.pages.most)*c.pages.size/4) }

// holdBlock returns the block that holds r, with a reference to it; nil where r does not lie
// in one, or all are in use.
func (c *cache) holdBlock(f *file, r disk.Range) *page {
	first, last := r.Off/blockSize, (r.End()-1)/blockSize
	if first != last {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.holdPage(c.blocks, f, r); p != nil {
		return p
	}
	key := pageKey{f, first}
	buf := c.takeBlock()
	if buf == nil || c.blocks.pages[key] != nil {
		return nil
	}
	off := first * blockSize
	p := c.insertPage(c.blocks, key, buf, disk.Range{Off: off, Len: min(blockSize, f.size-off)})
	p.refs++
	c.startFill(p)
	return p
}

func (c *cache) takeBlock() []byte {
	if buf := c.blocks.takeFree(); buf != nil {
		return buf
	}
	var oldest *page
	for _, p := range c.blocks.pages {
		if p.isIdle() && (oldest == nil || p.used < oldest.used) {
			oldest = p
		}
	}
	if oldest == nil {
		return nil
	}
	c.removePage(oldest)
	return c.blocks.takeFree()
}

// lookup returns the page that holds r.
func (c *cache) lookup(in *pageStore, f *file, r disk.Range) *page {
	p := in.pages[pageKey{f, r.Off / in.size}]
	if p == nil || !p.covers(r) {
		return nil
	}
	return p
}

// holdPage returns the page that holds r, with a reference to it, which release ends.
func (c *cache) holdPage(in *pageStore, f *file, r disk.Range) *page {
	p := c.lookup(in, f, r)
	if p != nil {
		p.refs++
		p.used = c.reads
	}
	return p
}

// removePage removes a page. Its memory is free when it has no users.
func (c *cache) removePage(p *page) {
	if p.gone {
		return
	}
	p.gone = true
	delete(p.store.pages, p.key)
	c.freeIfUnused(p)
}

// freeIfUnused frees the memory of a page that is gone and not used.
func (c *cache) freeIfUnused(p *page) {
	if p.gone && p.isIdle() && p.buf != nil {
		p.store.free = append(p.store.free, p.buf)
		p.buf = nil
	}
}

// dropFile forgets a file, whose fills have ended and whose readers are gone.
func (c *cache) dropFile(f *file) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams = slices.DeleteFunc(c.streams, func(s *stream) bool { return s.file == f })
	for _, in := range []*pageStore{c.pages, c.blocks} {
		for key, p := range in.pages {
			if key.file == f {
				c.removePage(p)
			}
		}
	}
}

// close gives the memory back.
func (c *cache) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.pages.close(), c.blocks.close())
}
