package mount

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/readahead"
)

// An openFile is an open file of a datastore. All handles of the same file and size share it.
type openFile struct {
	*readahead.File
	name       string       // name for the log
	handles    int          // number of open handles; guarded by the node's lock
	lastLogged atomic.Int64 // time of the last logged error in Unix seconds
}

// logError logs why a read failed, at most once a second for each file, because a reader may repeat it
// without end.
func (f *openFile) logError(log *slog.Logger, now time.Time, r disk.Range, err error) {
	if last := f.lastLogged.Load(); now.Unix() > last && f.lastLogged.CompareAndSwap(last, now.Unix()) {
		log.Error("read failed", "file", f.name, "off", r.Off, "len", r.Len, "err", err)
	}
}

// A handle is one open file descriptor of a file.
type handle struct {
	node *fileNode // node that the handle was opened from
	file *openFile // file, shared with other handles
}

var (
	_ fs.FileReader   = (*handle)(nil)
	_ fs.FileLseeker  = (*handle)(nil)
	_ fs.FileReleaser = (*handle)(nil)
)

// Open implements fs.NodeOpener. Handles of the same file share its state, unless its size has changed.
func (n *fileNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		return nil, 0, syscall.EROFS
	}
	ctx, cancel := n.m.requestContext(ctx)
	defer cancel()
	size, err := n.statSize(ctx)
	if err != nil {
		return nil, 0, n.m.errnoOf("open "+n.at.String(), err)
	}
	f := n.reuseOpen(size)
	if f == nil {
		src, err := n.m.host.Open(ctx, n.datacenter, n.at, size)
		if err != nil {
			return nil, 0, n.m.errnoOf("open "+n.at.String(), err)
		}
		f = n.addOpen(n.m.cache.Open(n.m.ctx, n.at.String(), src))
	}
	return &handle{node: n, file: f}, fuse.FOPEN_DIRECT_IO, fs.OK
}

// reuseOpen returns the open file of that size, with one more handle, or nil.
func (n *fileNode) reuseOpen(size int64) *openFile {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.opens {
		if f.Size() == size {
			f.handles++
			return f
		}
	}
	return nil
}

// addOpen makes f available to later opens, with one handle.
func (n *fileNode) addOpen(file *readahead.File) *openFile {
	f := &openFile{File: file, name: n.at.String(), handles: 1}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opens = append(n.opens, f)
	n.m.trackFile(f, +1)
	return f
}

// Release implements fs.FileReleaser. The last handle closes the file.
func (h *handle) Release(context.Context) syscall.Errno {
	h.node.mu.Lock()
	h.file.handles--
	last := h.file.handles == 0
	if last {
		h.node.opens = slices.DeleteFunc(h.node.opens, func(f *openFile) bool { return f == h.file })
	}
	h.node.mu.Unlock()
	if last {
		if err := h.file.Close(); err != nil {
			h.node.m.opts.Log.Warn("close file", "file", h.file.name, "err", err)
		}
		h.node.m.trackFile(h.file, -1)
	}
	return fs.OK
}

// Read implements fs.FileReader. It reads up to the end of the file.
func (h *handle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	dest = dest[:max(min(int64(len(dest)), h.file.Size()-off), 0)]
	if len(dest) == 0 {
		return reply{release: func() {}}, fs.OK
	}
	ctx, cancel := h.node.m.requestContext(ctx)
	defer cancel()
	data, release, err := h.file.View(ctx, dest, off)
	if err != nil {
		return nil, h.readErrno(ctx, disk.Range{Off: off, Len: int64(len(dest))}, err)
	}
	return reply{data, release}, fs.OK
}

// readErrno returns the errno for a failed read. It logs the reason, unless the reading process was
// killed.
func (h *handle) readErrno(ctx context.Context, r disk.Range, err error) syscall.Errno {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, context.Canceled):
		return syscall.EINTR
	case cause != nil:
		err = cause
	}
	h.file.logError(h.node.m.opts.Log, h.node.m.opts.Now(), r, err)
	return syscall.EIO
}

// Lseek implements fs.FileLseeker: SEEK_DATA and SEEK_HOLE, by the allocation map. The end of the file
// counts as a hole.
func (h *handle) Lseek(ctx context.Context, off uint64, whence uint32) (uint64, syscall.Errno) {
	const seekData, seekHole = 3, 4
	kind, size := disk.Data, h.file.Size()
	switch {
	case whence != seekData && whence != seekHole:
		return 0, syscall.EINVAL
	case off >= uint64(size):
		return 0, syscall.ENXIO
	case whence == seekHole:
		kind = disk.Zero
	}
	ctx, cancel := h.node.m.requestContext(ctx)
	defer cancel()
	at, found, err := h.file.FindKind(ctx, disk.Range{Off: int64(off), Len: size - int64(off)}, kind)
	switch {
	case err != nil:
		return 0, h.readErrno(ctx, disk.Range{Off: int64(off)}, err)
	case found:
		return uint64(at), fs.OK
	case kind == disk.Zero:
		return uint64(size), fs.OK
	}
	return 0, syscall.ENXIO
}

// A reply is the result of a read. It is a fuse.ReadResult.
type reply struct {
	data    []byte // bytes of the file
	release func() // ends the use of data
}

// Bytes implements fuse.ReadResult.
func (r reply) Bytes([]byte) ([]byte, fuse.Status) { return r.data, fuse.OK }

// Size implements fuse.ReadResult.
func (r reply) Size() int { return len(r.data) }

// Done implements fuse.ReadResult.
func (r reply) Done() { r.release() }
