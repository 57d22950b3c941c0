package readahead

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// A File is one open disk or file, and a disk.Source. All its readers share it.
type File struct {
	name  string      // name for errors
	src   disk.Source // content of the file; closed with the file
	size  int64       // size in bytes when the file was opened
	cache *Cache      // cache of the file

	ctx    context.Context    // ends when the file is closed
	cancel context.CancelFunc // ends ctx
	fills  sync.WaitGroup     // running fills of pages

	streams      bool            // the source prefers streams, because each of its requests has a high cost
	mapped       atomic.Bool     // the source has sent its allocation map
	mapOnce      sync.Once       // requests the map the first time
	mapWait      context.Context // ends when the request of the map has ended, or after Options.mapPatience
	blockFetches atomic.Int64    // number of fetched blocks
}

var _ disk.Source = (*File)(nil)

// Open returns the file whose content is src, and owns src. name is for errors. If ctx ends, reads of
// the source end. After its first success, src.Extents should be fast. The caller must close the file
// before the cache.
func (c *Cache) Open(ctx context.Context, name string, src disk.Source) *File {
	f := &File{name: name, src: src, size: src.Size(), cache: c, streams: src.Hints().Stream != nil}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f
}

// Close ends running reads of the source, and frees memory and source. No other method may be running.
func (f *File) Close() error {
	f.cancel()
	f.fills.Wait()
	f.cache.dropFile(f)
	return f.src.Close()
}

// Size returns the size in bytes when the file was opened.
func (f *File) Size() int64 { return f.size }

// Hints suggests reads of at most one page.
func (f *File) Hints() disk.Hints {
	h := f.src.Hints()
	return disk.Hints{Request: f.cache.pages.size, Streams: h.Streams, Span: h.Span}
}

// ReadAt fills p from off.
func (f *File) ReadAt(ctx context.Context, p []byte, off int64) error {
	data, release, err := f.View(ctx, p, off)
	defer release()
	if err == nil && len(p) > 0 && &data[0] != &p[0] {
		copy(p, data)
	}
	return err
}

// View returns the len(dest) bytes at off. They are a part of the cache if one page contains all of
// them; otherwise they are in dest. They are valid until the caller calls release, which is never nil.
func (f *File) View(ctx context.Context, dest []byte, off int64) (data []byte, release func(), err error) {
	r := disk.Range{Off: off, Len: int64(len(dest))}
	if err := disk.CheckRange(f.size, r); err != nil {
		return nil, releaseNothing, f.nameError(err)
	}
	if ctx.Err() != nil {
		return nil, releaseNothing, ctx.Err()
	}
	if r.Empty() {
		return dest, releaseNothing, nil
	}
	got, err := f.readAdmitted(ctx, dest, r, time.Now().Add(f.cache.opts.ReadTimeout))
	if err != nil {
		return nil, releaseNothing, f.nameError(err)
	}
	if got.page == nil {
		return got.data, releaseNothing, nil
	}
	return got.data, got.releasePage, nil
}

// errDeadline is the error of reads that took longer than Options.ReadTimeout.
var errDeadline = fault.New(fault.Transient, "the host did not answer in time")

// nameError adds the file's name to an error of a read.
func (f *File) nameError(err error) error { return fmt.Errorf("read %s: %w", f.name, err) }

// releaseNothing is the release of data without a page.
func releaseNothing() {}

// A reply is the result of a read.
type reply struct {
	data []byte // bytes of the file; they may be a part of page
	page *page  // page of data; nil if data is the reader's
	file *File  // file of page
}

// releasePage releases the page, if there is one. data must not be used after that.
func (r reply) releasePage() {
	if r.page != nil {
		r.file.cache.releasePage(r.page, int64(len(r.data)))
	}
}

// zeros is the content of replies for holes. It is never written.
var zeros [LeastPageSize]byte

// readAdmitted reads r, which must not be empty, until deadline. Reads of at least a block wait until
// their bytes may be under way.
func (f *File) readAdmitted(ctx context.Context, dest []byte, r disk.Range, deadline time.Time) (reply, error) {
	if r.Len < blockSize {
		return f.readRange(ctx, dest, r, deadline)
	}
	n := min(r.Len, f.cache.mostAdmitted)
	if !f.cache.admission.TryAcquire(n) {
		err := waitUntil(ctx, deadline, func(ctx context.Context) error { return f.cache.admission.Acquire(ctx, n) })
		if err != nil {
			return reply{}, err
		}
	}
	defer f.cache.admission.Release(n)
	return f.readRange(ctx, dest, r, deadline)
}

// readRange reads r, which must not be empty. It uses dest as memory if more than one page contains r.
func (f *File) readRange(ctx context.Context, dest []byte, r disk.Range, deadline time.Time) (reply, error) {
	if f.isInOnePage(r) {
		return f.readPart(ctx, dest, r, deadline)
	}
	for at := r.Off; at < r.End(); {
		part := disk.Range{Off: at, Len: min(f.cache.pages.size-at%f.cache.pages.size, r.End()-at)}
		room := dest[at-r.Off:][:part.Len]
		got, err := f.readPart(ctx, room, part, deadline)
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
func (f *File) isInOnePage(r disk.Range) bool {
	return r.Off/f.cache.pages.size == (r.End()-1)/f.cache.pages.size
}

// readPart reads r, which must lie in one page: from a page or a block, or directly from the source.
func (f *File) readPart(ctx context.Context, dest []byte, r disk.Range, deadline time.Time) (reply, error) {
	p := f.cache.noteRead(f, r)
	if f.isZero(r) {
		if p != nil {
			f.cache.releasePage(p, 0)
		}
		return f.zeroReply(dest, r), nil
	}
	if p == nil && r.Len < blockSize {
		p = f.cache.holdBlock(f, r)
	}
	if p != nil && f.cache.isFilled(p, r.End()) {
		return reply{data: p.slice(r), page: p, file: f}, nil
	}
	err := waitUntil(ctx, deadline, func(ctx context.Context) error {
		if p == nil {
			return f.readDirectly(ctx, dest[:r.Len], r)
		}
		return f.cache.waitFilled(ctx, p, r.End())
	})
	switch {
	case p == nil:
		return reply{data: dest[:r.Len]}, err
	case err != nil:
		f.cache.releasePage(p, 0)
		return reply{}, err
	}
	return reply{data: p.slice(r), page: p, file: f}, nil
}

// readDirectly reads r into dest without a page. It does not request holes, if they are known.
func (f *File) readDirectly(ctx context.Context, dest []byte, r disk.Range) error {
	extents := []disk.Extent{{Range: r, Kind: disk.Data}}
	if f.mapped.Load() {
		if known, err := f.extentsToRead(ctx, r); err == nil { // otherwise all is data, and the read decides
			extents = known
		}
	}
	for _, e := range extents {
		part := dest[e.Off-r.Off:][:e.Len]
		if e.Kind == disk.Zero {
			clear(part)
		} else if err := f.src.ReadAt(ctx, part, e.Off); err != nil {
			return err
		}
	}
	return nil
}

// waitUntil calls do, which waits for the source, with a context that ends at the deadline.
func waitUntil(ctx context.Context, deadline time.Time, do func(context.Context) error) error {
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errDeadline)
	defer cancel()
	err := do(ctx)
	if err != nil && context.Cause(ctx) == errDeadline {
		return errDeadline
	}
	return err
}

// zeroReply returns a reply of zeros for a hole.
func (f *File) zeroReply(dest []byte, r disk.Range) reply {
	if r.Len <= int64(len(zeros)) {
		return reply{data: zeros[:r.Len]}
	}
	clear(dest[:r.Len])
	return reply{data: dest[:r.Len]}
}

// Extents describes r by the allocation map of the source.
func (f *File) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	out, err := f.src.Extents(ctx, r)
	if err == nil {
		f.mapped.Store(true)
	}
	return out, err
}

// isZero reports whether r is known to be a hole. It makes no request: without a map the answer is
// false.
func (f *File) isZero(r disk.Range) bool {
	if !f.mapped.Load() {
		return false
	}
	_, found, err := f.FindKind(f.ctx, r, disk.Data)
	return err == nil && !found
}

// The map is read in windows that grow. A near position is found without describing a disk of a million
// runs, and a far one after few windows.
const (
	firstLook = 4 << 20  // length of the first window in bytes
	maxLook   = 64 << 30 // length of the largest window in bytes
)

// FindKind returns the offset of the first byte in r of that kind.
func (f *File) FindKind(ctx context.Context, r disk.Range, kind disk.Kind) (int64, bool, error) {
	for look := int64(firstLook); r.Len > 0; look = min(4*look, maxLook) {
		n := min(look, r.Len)
		extents, err := f.Extents(ctx, disk.Range{Off: r.Off, Len: n})
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
