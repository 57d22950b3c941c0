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
	pages   *store
	blocks  *store
	streams []*stream // streams of all files
	reads   int64
}

func newCache(o Options) *cache {
	return &cache{now: o.Now, pages: newStore(o.PageSize, o.Pages), blocks: newStore(blockSize, blocks)}
}

// observe takes note of a read and reads ahead where that is worth it. It returns the page
// that holds r, with a reference to it; nil if none does.
func (c *cache) observe(f *file, r disk.Range) *page {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	known := c.lookup(c.pages, f, r) != nil
	s := c.reader(f, r, known)
	forward := s.end < r.End()
	s.advance(r, c.now())
	c.merge(s)
	if forward && s.sequential() {
		if !known {
			s.ahead = min(s.ahead, r.Off) // the pages there were freed
		}
		c.readAhead(s, r)
	}
	return c.hold(c.pages, f, r)
}

// reader returns the stream that r belongs to.
func (c *cache) reader(f *file, r disk.Range, known bool) *stream {
	var oldest *stream
	own := 0
	for _, s := range c.streams {
		if s.file != f {
			continue
		}
		if s.reaches(r, known) || r.Off > s.end && s.sequential() && f.isZero(disk.Range{Off: s.end, Len: r.Off - s.end}) {
			if r.Off > s.end && s.sequential() {
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
		c.forget(oldest)
	}
	s := &stream{file: f, start: r.Off, end: r.Off, ahead: r.Off, last: c.now()}
	c.streams = append(c.streams, s)
	return s
}

// merge joins the streams that turn out to be one reader.
func (c *cache) merge(s *stream) {
	for _, t := range slices.Clone(c.streams) {
		if t == s || t.file != s.file || !s.absorbs(t) {
			continue
		}
		s.absorb(t)
		c.inherit(t, s)
		c.forget(t)
	}
}

// inherit gives the pages of one stream to another.
func (c *cache) inherit(from, to *stream) {
	for _, p := range c.pages.pages {
		if p.owner == from {
			p.owner = to
		}
	}
}

// forget drops a stream. Its pages stay until their memory is wanted.
func (c *cache) forget(s *stream) {
	c.streams = slices.DeleteFunc(c.streams, func(t *stream) bool { return t == s })
}

// alive reports whether pages should be kept for s.
func (c *cache) alive(s *stream) bool {
	return s != nil && slices.Contains(c.streams, s) && c.now().Sub(s.last) < stale
}

// share is how many pages each sequential reader may have.
func (c *cache) share() int {
	readers := 0
	for _, s := range c.streams {
		if s.sequential() && c.alive(s) {
			readers++
		}
	}
	return max(c.pages.most/max(readers, 1), 2)
}

// readAhead requests pages from the read r on, up to the end of the stream's window.
func (c *cache) readAhead(s *stream, r disk.Range) {
	size := c.pages.size
	window := s.window(c.share(), size)
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
		if !c.ask(s, disk.Range{Off: at, Len: next - at}) {
			break
		}
		at = next
	}
	s.ahead = max(s.ahead, at)
}

// ask has r, which lies in one page, fetched. It reports false when there is no memory.
func (c *cache) ask(s *stream, r disk.Range) bool {
	f, size := s.file, c.pages.size
	key := pageKey{f, r.Off / size}
	if f.isZero(r) {
		return true
	}
	p := c.pages.pages[key]
	if p == nil {
		buf := c.take()
		if buf == nil {
			return false
		}
		p = c.insert(c.pages, key, buf, r)
		p.owner = s
	}
	if r.Off <= p.limit {
		p.limit = max(p.limit, r.End())
	}
	c.start(p)
	return true
}

// insert makes a page that will hold r.
func (c *cache) insert(in *store, key pageKey, buf []byte, r disk.Range) *page {
	start := key.index * in.size
	p := &page{
		home: in, key: key, buf: buf, start: start, end: min(start+in.size, key.file.size),
		base: r.Off, filled: r.Off, limit: r.End(), used: c.reads,
	}
	in.pages[key] = p
	return p
}

// start fills p, unless it is being filled.
func (c *cache) start(p *page) {
	if !p.filling && p.filled < p.limit {
		p.filling = true
		p.key.file.fills.Go(func() { p.key.file.fill(p) })
	}
}

// take returns memory for a page: unused, or that of the least useful page.
func (c *cache) take() []byte {
	if buf := c.pages.memory(); buf != nil {
		return buf
	}
	victim := c.victim()
	if victim == nil {
		return nil
	}
	c.remove(victim)
	return c.pages.memory()
}

// victim picks the page that is missed least: one that was consumed, then one of a reader
// that is gone, then one that its reader has left far behind. Of what a reader will want
// soon nothing is taken: the readers' windows shrink as their number grows.
func (c *cache) victim() *page {
	var best *page
	worst := 1
	for _, p := range c.pages.pages {
		if !p.idle() {
			continue
		}
		r := c.rank(p)
		if r > worst || r == worst && (best == nil || p.used < best.used) {
			best, worst = p, r
		}
	}
	return best
}

// rank is 0 for pages that stay.
func (c *cache) rank(p *page) int {
	switch {
	case p.consumed():
		return 3
	case !c.alive(p.owner):
		return 2
	case p.end+c.behind() < p.owner.end:
		return 1
	}
	return 0
}

// behind returns the bytes kept behind a reader's furthest read.
func (c *cache) behind() int64 { return min(mostDisorder, int64(c.pages.most)*c.pages.size/4) }

// block returns the block that holds r, with a reference to it; nil where r does not lie
// in one, or all are in use.
func (c *cache) block(f *file, r disk.Range) *page {
	first, last := r.Off/blockSize, (r.End()-1)/blockSize
	if first != last {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.hold(c.blocks, f, r); p != nil {
		return p
	}
	key := pageKey{f, first}
	buf := c.takeBlock()
	if buf == nil || c.blocks.pages[key] != nil {
		return nil
	}
	off := first * blockSize
	p := c.insert(c.blocks, key, buf, disk.Range{Off: off, Len: min(blockSize, f.size-off)})
	p.refs++
	c.start(p)
	return p
}

func (c *cache) takeBlock() []byte {
	if buf := c.blocks.memory(); buf != nil {
		return buf
	}
	var oldest *page
	for _, p := range c.blocks.pages {
		if p.idle() && (oldest == nil || p.used < oldest.used) {
			oldest = p
		}
	}
	if oldest == nil {
		return nil
	}
	c.remove(oldest)
	return c.blocks.memory()
}

// lookup returns the page that holds r.
func (c *cache) lookup(in *store, f *file, r disk.Range) *page {
	p := in.pages[pageKey{f, r.Off / in.size}]
	if p == nil || !p.holds(r) {
		return nil
	}
	return p
}

// hold returns the page that holds r, with a reference to it, which release ends.
func (c *cache) hold(in *store, f *file, r disk.Range) *page {
	p := c.lookup(in, f, r)
	if p != nil {
		p.refs++
		p.used = c.reads
	}
	return p
}

// remove removes a page. Its memory is free when it has no users.
func (c *cache) remove(p *page) {
	if p.gone {
		return
	}
	p.gone = true
	delete(p.home.pages, p.key)
	c.reclaim(p)
}

// reclaim frees the memory of a page that is gone and not used.
func (c *cache) reclaim(p *page) {
	if p.gone && p.idle() && p.buf != nil {
		p.home.free = append(p.home.free, p.buf)
		p.buf = nil
	}
}

// drop forgets a file, whose fills have ended and whose readers are gone.
func (c *cache) drop(f *file) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams = slices.DeleteFunc(c.streams, func(s *stream) bool { return s.file == f })
	for _, in := range []*store{c.pages, c.blocks} {
		for key, p := range in.pages {
			if key.file == f {
				c.remove(p)
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
