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

	mapped  atomic.Bool  // the allocation map was asked for, and answered
	small   atomic.Int64 // blocks that were fetched
	told    atomic.Int64 // when an error was logged last, Unix seconds
	handles int          // guarded by the node's lock
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
	f.cache.drop(f)
	return f.src.Close()
}

// reply is what a read found: bytes, and what to do when they were sent.
type reply struct {
	data []byte
	page *page // page of data; nil if data is the reader's
	file *file
}

// done ends the reply's hold on the page.
func (r reply) done() {
	if r.page != nil {
		r.file.cache.release(r.page, int64(len(r.data)))
	}
}

// zeros are what holes are answered with.
var zeros [leastPageSize]byte

// read returns the bytes at off, as many as dest has room for and the file has. dest is
// used where one page does not hold all of them.
func (f *file) read(ctx context.Context, dest []byte, off int64) (reply, error) {
	r := disk.Range{Off: off, Len: min(int64(len(dest)), f.size-off)}
	if r.Len <= 0 {
		return reply{}, nil
	}
	if f.samePage(r) {
		return f.piece(ctx, dest, r)
	}
	for at := r.Off; at < r.End(); {
		part := disk.Range{Off: at, Len: min(f.cache.pages.size-at%f.cache.pages.size, r.End()-at)}
		room := dest[at-r.Off:][:part.Len]
		got, err := f.piece(ctx, room, part)
		if err != nil {
			return reply{}, err
		}
		copy(room, got.data)
		got.done()
		at = part.End()
	}
	return reply{data: dest[:r.Len]}, nil
}

func (f *file) samePage(r disk.Range) bool {
	return r.Off/f.cache.pages.size == (r.End()-1)/f.cache.pages.size
}

// piece reads r, which lies in one page: from a page or block, or straight from the wire.
func (f *file) piece(ctx context.Context, dest []byte, r disk.Range) (reply, error) {
	p := f.cache.observe(f, r)
	if p == nil && f.isZero(r) {
		return f.hole(dest, r), nil
	}
	if p == nil && r.Len < blockSize {
		p = f.cache.block(f, r)
	}
	if p == nil {
		return reply{data: dest[:r.Len]}, f.src.ReadAt(ctx, dest[:r.Len], r.Off)
	}
	if err := f.cache.wait(ctx, p, r.End()); err != nil {
		f.cache.release(p, 0)
		return reply{}, err
	}
	return reply{data: p.bytes(r), page: p, file: f}, nil
}

func (f *file) hole(dest []byte, r disk.Range) reply {
	if r.Len <= int64(len(zeros)) {
		return reply{data: zeros[:r.Len]}
	}
	clear(dest[:r.Len])
	return reply{data: dest[:r.Len]}
}

// fill reads the missing bytes of p, including later requests.
func (f *file) fill(p *page) {
	for {
		r, ok := f.cache.next(p)
		if !ok {
			return
		}
		if err := f.fetch(p, r); err != nil {
			f.cache.failed(p, err)
			return
		}
	}
}

// fetch reads r into p.
func (f *file) fetch(p *page, r disk.Range) error {
	if p.isBlock() && !f.mapped.Load() {
		if f.small.Add(1) == mapAfter {
			f.fills.Go(func() { _, _ = f.extents(f.ctx, disk.Range{Len: 1}) }) // without a map all is data
		}
		return f.wire(p, r)
	}
	extents, err := f.extents(f.ctx, r)
	if err != nil {
		return err
	}
	for _, e := range joined(extents) {
		if e.Kind == disk.Zero {
			clear(p.bytes(e.Range))
			f.cache.arrived(p, e.Len)
		} else if err := f.wire(p, e.Range); err != nil {
			return err
		}
	}
	return nil
}

// joined combines extents that are cheaper to read together.
func joined(extents []disk.Extent) []disk.Extent {
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

// wire reads r into p over the network: a block at once and ahead of others, a page from
// front to back.
func (f *file) wire(p *page, r disk.Range) error {
	open := f.src.Hints().Stream
	if p.isBlock() || open == nil {
		err := f.src.ReadAt(f.ctx, p.bytes(r), r.Off)
		if err == nil {
			f.cache.arrived(p, r.Len)
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
		if _, err := io.ReadFull(body, p.bytes(part)); err != nil {
			return err
		}
		f.cache.arrived(p, part.Len)
		r = disk.Range{Off: part.End(), Len: r.Len - part.Len}
	}
	return nil
}

// extents describes r by the allocation map.
func (f *file) extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
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
	_, found, err := f.find(f.ctx, r, disk.Data)
	return err == nil && !found
}

// seek returns the next byte from off on that is of that kind; the file's end is a hole.
func (f *file) seek(ctx context.Context, off int64, kind disk.Kind) (int64, bool, error) {
	at, found, err := f.find(ctx, disk.Range{Off: off, Len: f.size - off}, kind)
	if err != nil || found {
		return at, found, err
	}
	return f.size, kind == disk.Zero, nil
}

// The map is read in windows that grow: a near position is found without describing a disk of a million
// runs, and a far one after few windows.
// disk of a million runs, and what is far lies behind few.
const (
	leastLook = 4 << 20
	mostLook  = 64 << 30
)

// find returns the first byte in r of that kind.
func (f *file) find(ctx context.Context, r disk.Range, kind disk.Kind) (int64, bool, error) {
	for look := int64(leastLook); r.Len > 0; look = min(4*look, mostLook) {
		n := min(look, r.Len)
		extents, err := f.extents(ctx, disk.Range{Off: r.Off, Len: n})
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

// tell logs why a read failed, once a second at most: a reader may go on for ever.
func (f *file) tell(now time.Time, r disk.Range, err error) {
	if last := f.told.Load(); now.Unix() > last && f.told.CompareAndSwap(last, now.Unix()) {
		f.log.Error("read failed", "file", f.name, "off", r.Off, "len", r.Len, "err", err)
	}
}
