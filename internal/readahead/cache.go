package readahead

import (
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/decamp/decamp/internal/disk"
)

// A Cache is memory that all its open files share. It is safe for concurrent use. Unless noted
// otherwise, its unexported methods require mu.
type Cache struct {
	opts Options // options with defaults

	// bytes of reads that may be under way, so that pages for all of them exist; others wait in order of
	// arrival
	admission    *semaphore.Weighted
	mostAdmitted int64 // bytes of admission

	mu      sync.Mutex // never held across I/O
	pages   *pageStore // pages for sequential readers
	blocks  *pageStore // blocks for random readers
	streams []*stream  // streams of all files
	reads   int64      // number of reads so far: the clock of page.used and stream.used
}

// admittedShare is the part of the pages that reads under way may use. Another half is for read-ahead, and
// the rest for pages of which only a part was read.
const admittedShare = 3

// New returns an empty cache. It allocates memory at the first read.
func New(o Options) *Cache {
	o = o.withDefaults()
	most := o.PageSize * int64(o.Pages) / admittedShare
	return &Cache{
		opts: o, mostAdmitted: most, admission: semaphore.NewWeighted(most),
		pages: newPageStore(o.PageSize, o.Pages), blocks: newPageStore(blockSize, o.Blocks),
	}
}

// noteRead records a read, and starts read-ahead if that is useful. It returns the page that contains r
// with a reference, or nil. mu must not be held.
func (c *Cache) noteRead(f *File, r disk.Range) *page {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	known := c.lookup(c.pages, f, r) != nil
	s := c.streamOf(f, r, known)
	before := s.end
	s.addRead(r, c.opts.Now(), c.reads)
	if before < s.end {
		c.mergeStreams(s, before)
		if s.isSequential() {
			if !known && s.end == r.End() {
				s.ahead = min(s.ahead, r.Off) // the pages there were freed
			}
			c.readAhead(s, r)
		}
	}
	return c.holdPage(c.pages, f, r)
}

// streamOf returns the stream that r belongs to, or a new one, which may replace the oldest stream of
// the file. known reports that a page contains r.
func (c *Cache) streamOf(f *File, r disk.Range, known bool) *stream {
	var nearest, oldest *stream
	var distance int64
	own := 0
	for _, s := range c.streams {
		if s.file != f {
			continue
		}
		if d, near := s.distanceTo(r, known); near && (nearest == nil || d < distance) {
			nearest, distance = s, d
		}
		own++
		if oldest == nil || s.used < oldest.used {
			oldest = s
		}
	}
	if nearest == nil {
		nearest = c.streamBeforeHole(f, r)
	}
	if nearest != nil {
		return nearest
	}
	if own >= streamsPerFile {
		c.dropStream(oldest)
	}
	s := &stream{file: f, start: r.Off, end: r.Off, ahead: r.Off}
	c.streams = append(c.streams, s)
	return s
}

// streamBeforeHole returns the sequential stream that reaches r if it skips a hole, or nil.
func (c *Cache) streamBeforeHole(f *File, r disk.Range) *stream {
	var nearest *stream
	for _, s := range c.streams {
		if s.file == f && s.isSequential() && s.end < r.Off && (nearest == nil || s.end > nearest.end) {
			nearest = s
		}
	}
	if nearest == nil || !f.isZero(disk.Range{Off: nearest.end, Len: r.Off - nearest.end}) {
		return nil
	}
	nearest.end = r.Off // the hole was skipped, not jumped over
	return nearest
}

// mergeStreams merges s, which ended at before, with the streams that it has reached.
func (c *Cache) mergeStreams(s *stream, before int64) {
	for _, t := range slices.Clone(c.streams) {
		if t == s || t.file != s.file || !s.hasReached(t, before) || !c.isAlive(t) {
			continue
		}
		s.mergeFrom(t)
		c.moveOwnership(t, s)
		c.dropStream(t)
	}
}

// moveOwnership makes the pages of one stream those of another.
func (c *Cache) moveOwnership(from, to *stream) {
	for _, p := range c.pages.pages {
		if p.owner == from {
			p.owner = to
		}
	}
}

// dropStream removes a stream. Its pages stay until their memory is needed.
func (c *Cache) dropStream(s *stream) {
	c.streams = slices.DeleteFunc(c.streams, func(t *stream) bool { return t == s })
}

// isAlive reports whether pages should be kept for s. It returns false for nil.
func (c *Cache) isAlive(s *stream) bool {
	return s != nil && slices.Contains(c.streams, s) && c.opts.Now().Sub(s.last) < stale
}

// pageShare returns the number of pages for each sequential reader. Readers that stopped do not count:
// a copy in parts of the disk leaves one at the end of each part.
func (c *Cache) pageShare() int {
	readers := 0
	for _, s := range c.streams {
		if s.isSequential() && c.reads-s.used < activeReads {
			readers++
		}
	}
	return max(c.pages.most/max(readers, 1), 2)
}

// readLimit returns the offset where the read-ahead of s ends: the end of the file, or the start of
// another reader, which has its own pages. It may be the same reader, whose reads are out of order.
func (c *Cache) readLimit(s *stream) int64 {
	limit := s.file.size
	for _, t := range c.streams {
		if t != s && t.file == s.file && t.start >= s.end && (t.isSequential() || c.reads-t.used < lateReads) {
			limit = min(limit, t.start)
		}
	}
	return limit
}

// readAhead requests pages from read r to the end of the stream's window.
func (c *Cache) readAhead(s *stream, r disk.Range) {
	size, limit := c.pages.size, c.readLimit(s)
	window := s.aheadWindow(c.pageShare(), size)
	target := min(s.end+window, limit)
	if window >= 2*size && target < limit {
		target -= target % size // whole pages, once they are many
	}
	at := max(s.ahead, r.Off)
	if target-at < min(window/2, c.fetchSize(s.file)) && target < limit && at >= r.End() {
		return // little is missing: one larger request later is better
	}
	var run []*page
	for at < target {
		next := min((at/size+1)*size, target)
		p, ok := c.requestPage(s, disk.Range{Off: at, Len: next - at})
		if !ok {
			break
		}
		run = c.extendRun(run, p)
		at = next
	}
	c.startFill(run)
	s.ahead = max(s.ahead, at)
}

// One stream of a source should have streamSize bytes: shorter ones suffer from the latency of requests.
// With little memory they are shorter, so that a single reader can keep several connections busy.
const (
	streamSize  = 4 << 20 // bytes of a stream
	leastFills  = 6       // number of streams for one reader
	windowShare = 2       // part of the pages that one reader reads ahead
)

// fetchSize returns the number of bytes that one request for pages of f should have at most.
func (c *Cache) fetchSize(f *File) int64 {
	size := c.pages.size
	if !f.streams {
		return size
	}
	pages := max(int64(c.pages.most)/windowShare/leastFills, 1)
	return max(min(streamSize, pages*size), size)
}

// extendRun adds p to the pages that one goroutine will fill. If p is nil or too much, or does not follow
// them, it starts to fill these pages, and returns a run with p alone.
func (c *Cache) extendRun(run []*page, p *page) []*page {
	if n := len(run); n > 0 {
		last := run[n-1]
		if p != nil && last.limit == last.end && p.filled == last.end && p.limit-run[0].filled <= c.fetchSize(p.key.file) {
			return append(run, p)
		}
		c.startFill(run)
	}
	if p == nil {
		return nil
	}
	return []*page{p}
}

// requestPage requests r, which must lie in one page. It returns the page if it must be filled, and nil
// if it is filled or being filled, or if r is a hole. ok is false if there is no memory.
func (c *Cache) requestPage(s *stream, r disk.Range) (p *page, ok bool) {
	f, size := s.file, c.pages.size
	key := pageKey{f, r.Off / size}
	if f.isZero(r) {
		return nil, true
	}
	p = c.pages.pages[key]
	if p == nil {
		buf := c.takeMemory()
		if buf == nil {
			return nil, false
		}
		p = c.insertPage(c.pages, key, buf, r)
		p.owner, p.ownerReads = s, s.reads
	}
	if r.Off <= p.limit {
		p.limit = max(p.limit, r.End())
	}
	if p.filling || p.filled == p.limit {
		return nil, true
	}
	p.filling = true // so that it is not evicted
	return p, true
}

// insertPage adds a page that will contain r. buf is its memory.
func (c *Cache) insertPage(in *pageStore, key pageKey, buf []byte, r disk.Range) *page {
	start := key.index * in.size
	p := &page{
		store: in, key: key, buf: buf, start: start, end: min(start+in.size, key.file.size),
		base: r.Off, filled: r.Off, limit: r.End(), used: c.reads,
	}
	in.pages[key] = p
	return p
}

// startFill starts to fill pages, which must be marked as filling.
func (c *Cache) startFill(run []*page) {
	if len(run) > 0 {
		f := run[0].key.file
		f.fills.Go(func() { f.fillPages(run) })
	}
}

// takeMemory returns memory for a page: unused memory, or that of the least useful page. It returns nil
// if all pages are in use.
func (c *Cache) takeMemory() []byte {
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

// leastUseful returns the page to evict: one that was consumed, one whose reader is gone, or one far
// behind its reader, in this order. It returns nil if there is no such page. Pages that a reader will
// need soon stay; the windows of readers shrink as their number grows.
func (c *Cache) leastUseful() *page {
	var best *page
	worst := 1
	behind := min(mostDisorder, int64(c.pages.most)*c.pages.size/4)
	for _, p := range c.pages.pages {
		if !p.isIdle() {
			continue
		}
		r := c.evictionRank(p, behind)
		if r > worst || r == worst && (best == nil || p.used < best.used) {
			best, worst = p, r
		}
	}
	return best
}

// evictionRank returns how useless a page is; 0 means that it stays. behind is the number of bytes that
// are kept behind a reader's furthest read.
func (c *Cache) evictionRank(p *page, behind int64) int {
	switch {
	case p.isConsumed():
		return 3
	case !c.isAlive(p.owner):
		return 2
	case p.end+behind < p.owner.end && p.owner.reads-p.ownerReads >= lateReads:
		return 1
	}
	return 0
}

// holdBlock returns the block that contains r with a reference. It returns nil if r is not within one
// block, or no block can be used. mu must not be held.
func (c *Cache) holdBlock(f *File, r disk.Range) *page {
	if r.Off/blockSize != (r.End()-1)/blockSize {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.holdPage(c.blocks, f, r); p != nil {
		return p
	}
	key := pageKey{f, r.Off / blockSize}
	want := c.blockRange(key, r)
	if old := c.blocks.pages[key]; old != nil {
		if !old.isIdle() {
			return nil // a part of the block that others wait for
		}
		c.removePage(old)
	}
	buf := c.takeBlock()
	if buf == nil {
		return nil
	}
	p := c.insertPage(c.blocks, key, buf, want)
	p.refs++
	p.filling = true
	c.startFill([]*page{p})
	return p
}

// blockRange returns the part of a block to fetch for read r. The first read of a block fetches only
// the sectors of r: most blocks of a random reader are read once. A further read fetches the block. If
// the source prefers streams, the first read fetches the block.
func (c *Cache) blockRange(key pageKey, r disk.Range) disk.Range {
	f := key.file
	if c.blocks.pages[key] != nil || f.streams {
		off := key.index * blockSize
		return disk.Range{Off: off, Len: min(blockSize, f.size-off)}
	}
	off := r.Off / disk.SectorSize * disk.SectorSize
	end := (r.End() + disk.SectorSize - 1) / disk.SectorSize * disk.SectorSize
	return disk.Range{Off: off, Len: min(end, f.size) - off}
}

// takeBlock returns memory for a block: unused memory, or that of the block with the oldest use. It
// returns nil if all blocks are in use.
func (c *Cache) takeBlock() []byte {
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

// lookup returns the page that contains r, or nil.
func (c *Cache) lookup(in *pageStore, f *File, r disk.Range) *page {
	p := in.pages[pageKey{f, r.Off / in.size}]
	if p == nil || !p.covers(r) {
		return nil
	}
	return p
}

// holdPage returns the page that contains r with a reference, which the caller releases with
// releasePage.
func (c *Cache) holdPage(in *pageStore, f *File, r disk.Range) *page {
	p := c.lookup(in, f, r)
	if p != nil {
		p.refs++
		p.used = c.reads
		if p.owner != nil {
			p.ownerReads = p.owner.reads
		}
	}
	return p
}

// removePage removes a page. Its memory is freed by its last user.
func (c *Cache) removePage(p *page) {
	if p.gone {
		return
	}
	p.gone = true
	delete(p.store.pages, p.key)
	c.freeIfUnused(p)
}

// freeIfUnused frees the memory of a removed page that has no users.
func (c *Cache) freeIfUnused(p *page) {
	if p.gone && p.isIdle() && p.buf != nil {
		p.store.free = append(p.store.free, p.buf)
		p.buf = nil
	}
}

// dropFile removes a file. Its fills must have ended and its readers must be gone. mu must not be held.
func (c *Cache) dropFile(f *File) {
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

// Close unmaps the memory. It fails if pages are in use.
func (c *Cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.pages.close(), c.blocks.close())
}
