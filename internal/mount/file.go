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
	// number of bytes of a page after whose arrival its readers are woken
	chunk = 256 << 10
	// largest hole between data, in bytes, that is read as well: another request costs more
	worthGap = 64 << 10
	// number of small reads after which the allocation map is requested
	mapAfter = 32
)

// A file is an open file of a datastore. All handles of the same file and size share it.
type file struct {
	name  string       // name for the log
	src   disk.Source  // content of the file at the host; closed with the file
	size  int64        // size in bytes when the file was opened
	cache *cache       // cache of the mount
	log   *slog.Logger // log of the mount

	ctx    context.Context    // ends when the last handle is closed
	cancel context.CancelFunc // ends ctx
	fills  sync.WaitGroup     // running fills of pages

	mapped       atomic.Bool  // the host has sent the allocation map
	blockFetches atomic.Int64 // number of fetched blocks
	lastLogged   atomic.Int64 // time of the last logged error in Unix seconds
	handles      int          // number of open handles; guarded by the node's lock
}

// newFile returns a file without handles. It owns src.
func newFile(ctx context.Context, name string, src disk.Source, c *cache, log *slog.Logger) *file {
	f := &file{name: name, src: src, size: src.Size(), cache: c, log: log}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f
}

// close ends running reads, and frees memory and source. All handles must be closed.
func (f *file) close() error {
	f.cancel()
	f.fills.Wait()
	f.cache.dropFile(f)
	return f.src.Close()
}

// A reply is the result of a read. It is a fuse.ReadResult.
type reply struct {
	data []byte // bytes of the file; they may be a part of page
	page *page  // page of data; nil if data is the reader's
	file *file  // file of page
}

// releasePage releases the page, if there is one. data must not be used after that.
func (r reply) releasePage() {
	if r.page != nil {
		r.file.cache.releasePage(r.page, int64(len(r.data)))
	}
}

// zeros is the content of replies for holes. It is never written.
var zeros [leastPageSize]byte

// readAt returns the bytes at off, up to the length of dest and the end of the file. It uses dest as
// memory if more than one page contains the bytes.
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

// isInOnePage reports whether r, which must not be empty, lies in one page.
func (f *file) isInOnePage(r disk.Range) bool {
	return r.Off/f.cache.pages.size == (r.End()-1)/f.cache.pages.size
}

// readPart reads r, which must lie in one page: from a page or a block, or directly from the host.
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

// zeroReply returns a reply of zeros for a hole.
func (f *file) zeroReply(dest []byte, r disk.Range) reply {
	if r.Len <= int64(len(zeros)) {
		return reply{data: zeros[:r.Len]}
	}
	clear(dest[:r.Len])
	return reply{data: dest[:r.Len]}
}

// fillPage reads the missing bytes of p, including bytes that are requested meanwhile.
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

// fetchRange reads r into p. It does not request holes from the host, if they are known.
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

// joinExtents merges extents that are cheaper to read together: short holes between data.
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

// fetchRemote reads r into p over the network: a block with one request of high priority, a page as a
// stream.
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

// readExtents describes r by the allocation map of the disk.
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

// seekKind returns the offset of the next byte of that kind from off on. The end of the file counts as
// a hole.
func (f *file) seekKind(ctx context.Context, off int64, kind disk.Kind) (int64, bool, error) {
	at, found, err := f.findKind(ctx, disk.Range{Off: off, Len: f.size - off}, kind)
	if err != nil || found {
		return at, found, err
	}
	return f.size, kind == disk.Zero, nil
}

// The map is read in windows that grow. A near position is found without describing a disk of a million
// runs, and a far one after few windows.
const (
	firstLook = 4 << 20  // length of the first window in bytes
	maxLook   = 64 << 30 // length of the largest window in bytes
)

// findKind returns the offset of the first byte in r of that kind.
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

// logError logs why a read failed, at most once a second for each file, because a reader may repeat it
// without end.
func (f *file) logError(now time.Time, r disk.Range, err error) {
	if last := f.lastLogged.Load(); now.Unix() > last && f.lastLogged.CompareAndSwap(last, now.Unix()) {
		f.log.Error("read failed", "file", f.name, "off", r.Off, "len", r.Len, "err", err)
	}
}
