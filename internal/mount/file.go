package mount

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/disk"
)

const (
	// bytes of a page that arrive before its readers are woken
	chunk = 256 << 10
	// worthGap is the hole that is read rather than asked around: a request costs more.
	worthGap = 64 << 10
	// mapAfter is how many small reads it takes until the allocation map is worth asking for.
	mapAfter = 32
)

// file is a datastore file that is open, shared by all its handles.
type file struct {
	name  string // name for the log
	src   disk.Source
	size  int64
	cache *cache
	log   *slog.Logger

	ctx    context.Context // ends when the last handle is closed
	cancel context.CancelFunc
	fills  sync.WaitGroup

	mapped       atomic.Bool  // the allocation map was asked for, and answered
	blockFetches atomic.Int64 // blocks that were fetched
	lastLogged   atomic.Int64 // when an error was logged last, Unix seconds
	handles      int          // guarded by the node's lock
}

func newFile(ctx context.Context, name string, src disk.Source, c *cache, log *slog.Logger) *file {
	f := &file{name: name, src: src, size: src.Size(), cache: c, log: log}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f
}

// close ends running reads, and frees memory and source.
func (f *file) close() error {
	f.cancel()
	f.fills.Wait()
	f.cache.dropFile(f)
	return f.src.Close()
}

// reply is what a read found: bytes, and what to do when they were sent.
type reply struct {
	data []byte
	page *page // page of data; nil if data is the reader's
	file *file
}

// releasePage ends the reply's hold on the page.
func (r reply) releasePage() {
	if r.page != nil {
		r.file.cache.releasePage(r.page, int64(len(r.data)))
	}
}

// zeros are what holes are answered with.
var zeros [leastPageSize]byte

// readAt returns the bytes at off, as many as dest has room for and the file has. dest is
// used where one page does not hold all of them.
func (f *file) readAt(ctx context.Context, dest []byte, off int64) (reply, error) {
	r := disk.Range{Off: off, Len: min(int64(len(dest)), f.size-off)}
	if r.Len <= 0 {
		return reply{}, nil
	}
	if f.isInOnePage(r) {
		return f.readPart(ctx, dest, r)
	}
	for at := r.Off; at < r.End(); {
		part := disk.Range{Off: at, Len: min(f.cache.pages.size-at%f.cache.pages.size, r.End()-at)}
		room := dest[at-r.Off:][:part.Len]
		got, err := f.readPart(ctx, room, part)
		if err != nil {
			return reply{}, err
		}
		copy(room, got.data)
		got.releasePage()
		at = part.End()
	}
	return reply{data: dest[:r.Len]}, nil
}

func (f *file) isInOnePage(r disk.Range) bool {
	return r.Off/f.cache.pages.size == (r.End()-1)/f.cache.pages.size
}

// readPart reads r, which lies in one page: from a page or block, or straight from the wire.
func (f *file) readPart(ctx context.Context, dest []byte, r disk.Range) (reply, error) {
	p := f.cache.noteRead(f, r)
	if p == nil && f.isZero(r) {
		return f.zeroReply(dest, r), nil
	}
	if p == nil && r.Len < blockSize {
		p = f.cache.holdBlock(f, r)
	}
	if p == nil {
		return reply{data: dest[:r.Len]}, f.src.ReadAt(ctx, dest[:r.Len], r.Off)
	}
	if err := f.cache.waitFilled(ctx, p, r.End()); err != nil {
		f.cache.releasePage(p, 0)
		return reply{}, err
	}
	return reply{data: p.slice(r), page: p, file: f}, nil
}

func (f *file) zeroReply(dest []byte, r disk.Range) reply {
	if r.Len <= int64(len(zeros)) {
		return reply{data: zeros[:r.Len]}
	}
	clear(dest[:r.Len])
	return reply{data: dest[:r.Len]}
}

// fillPage reads the missing bytes of p, including later requests.
func (f *file) fillPage(p *page) {
	for {
		r, ok := f.cache.nextMissing(p)
		if !ok {
			return
		}
		if err := f.fetchRange(p, r); err != nil {
			f.cache.failPage(p, err)
			return
		}
	}
}

// fetchRange reads r into p.
func (f *file) fetchRange(p *page, r disk.Range) error {
	if p.isBlock() && !f.mapped.Load() {
		if f.blockFetches.Add(1) == mapAfter {
			f.fills.Go(func() { _, _ = f.readExtents(f.ctx, disk.Range{Len: 1}) }) // without a map all is data
		}
		return f.fetchRemote(p, r)
	}
	extents, err := f.readExtents(f.ctx, r)
	if err != nil {
		return err
	}
	for _, e := range joinExtents(extents) {
		if e.Kind == disk.Zero {
			clear(p.slice(e.Range))
			f.cache.addFilled(p, e.Len)
		} else if err := f.fetchRemote(p, e.Range); err != nil {
			return err
		}
	}
	return nil
}

// joinExtents combines extents that are cheaper to read together.
func joinExtents(extents []disk.Extent) []disk.Extent {
	var out []disk.Extent
	for i, e := range extents {
		between := len(out) > 0 && i+1 < len(extents) && e.Len <= worthGap
		if e.Kind == disk.Zero && between && out[len(out)-1].Kind == disk.Data {
			e.Kind = disk.Data
		}
		if n := len(out); n > 0 && out[n-1].Kind == e.Kind {
			out[n-1].Len += e.Len
			continue
		}
		out = append(out, e)
	}
	return out
}

// fetchRemote reads r into p over the network: a block at once and ahead of others, a page from
// front to back.
func (f *file) fetchRemote(p *page, r disk.Range) error {
	open := f.src.Hints().Stream
	if p.isBlock() || open == nil {
		err := f.src.ReadAt(f.ctx, p.slice(r), r.Off)
		if err == nil {
			f.cache.addFilled(p, r.Len)
		}
		return err
	}
	body, err := open(f.ctx, r)
	if err != nil {
		return err
	}
	defer body.Close()
	for r.Len > 0 {
		part := disk.Range{Off: r.Off, Len: min(r.Len, chunk)}
		if _, err := io.ReadFull(body, p.slice(part)); err != nil {
			return err
		}
		f.cache.addFilled(p, part.Len)
		r = disk.Range{Off: part.End(), Len: r.Len - part.Len}
	}
	return nil
}

// readExtents describes r by the allocation map.
func (f *file) readExtents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	out, err := f.src.Extents(ctx, r)
	if err == nil {
		f.mapped.Store(true)
	}
	return out, err
}

// isZero reports whether r is known to be a hole. It makes no request: without a map the answer is
// false.
func (f *file) isZero(r disk.Range) bool {
	if !f.mapped.Load() {
		return false
	}
	_, found, err := f.findKind(f.ctx, r, disk.Data)
	return err == nil && !found
}

// seekKind returns the next byte from off on that is of that kind; the file's end is a hole.
func (f *file) seekKind(ctx context.Context, off int64, kind disk.Kind) (int64, bool, error) {
	at, found, err := f.findKind(ctx, disk.Range{Off: off, Len: f.size - off}, kind)
	if err != nil || found {
		return at, found, err
	}
	return f.size, kind == disk.Zero, nil
}

// The map is read in windows that grow: a near position is found without describing a disk of a million
// runs, and a far one after few windows.
// disk of a million runs, and what is far lies behind few.
const (
	firstLook = 4 << 20
	maxLook   = 64 << 30
)

// findKind returns the first byte in r of that kind.
func (f *file) findKind(ctx context.Context, r disk.Range, kind disk.Kind) (int64, bool, error) {
	for look := int64(firstLook); r.Len > 0; look = min(4*look, maxLook) {
		n := min(look, r.Len)
		extents, err := f.readExtents(ctx, disk.Range{Off: r.Off, Len: n})
		if err != nil {
			return 0, false, err
		}
		for _, e := range extents {
			if e.Kind == kind {
				return e.Off, true, nil
			}
		}
		r = disk.Range{Off: r.Off + n, Len: r.Len - n}
	}
	return 0, false, nil
}

// logError logs why a read failed, once a second at most: a reader may go on for ever.
func (f *file) logError(now time.Time, r disk.Range, err error) {
	if last := f.lastLogged.Load(); now.Unix() > last && f.lastLogged.CompareAndSwap(last, now.Unix()) {
		f.log.Error("read failed", "file", f.name, "off", r.Off, "len", r.Len, "err", err)
	}
}
