package mount

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/decamp/decamp/internal/disk"
)

// A handle is one open file descriptor of a file.
type handle struct {
	node *fileNode // node that the handle was opened from
	file *file     // file, shared with other handles
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
		f = n.addOpen(newFile(n.m.ctx, n.at.String(), src, n.m.cache, n.m.opts.Log))
	}
	return &handle{node: n, file: f}, fuse.FOPEN_DIRECT_IO, fs.OK
}

// reuseOpen returns the open file of that size, with one more handle, or nil.
func (n *fileNode) reuseOpen(size int64) *file {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.opens {
		if f.size == size {
			f.handles++
			return f
		}
	}
	return nil
}

// addOpen makes f available to later opens, with one handle.
func (n *fileNode) addOpen(f *file) *file {
	n.mu.Lock()
	defer n.mu.Unlock()
	f.handles = 1
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
		h.node.opens = slices.DeleteFunc(h.node.opens, func(f *file) bool { return f == h.file })
	}
	h.node.mu.Unlock()
	if last {
		if err := h.file.close(); err != nil {
			h.node.m.opts.Log.Warn("close file", "file", h.file.name, "err", err)
		}
		h.node.m.trackFile(h.file, -1)
	}
	return fs.OK
}

// Read implements fs.FileReader.
func (h *handle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	ctx, cancel := h.node.m.requestContext(ctx)
	defer cancel()
	r, err := h.file.readAt(ctx, dest, off)
	if err != nil {
		return nil, h.readErrno(ctx, disk.Range{Off: off, Len: int64(len(dest))}, err)
	}
	return r, fs.OK
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
	h.file.logError(h.node.m.opts.Now(), r, err)
	return syscall.EIO
}

// Lseek implements fs.FileLseeker: SEEK_DATA and SEEK_HOLE, by the allocation map.
func (h *handle) Lseek(ctx context.Context, off uint64, whence uint32) (uint64, syscall.Errno) {
	const seekData, seekHole = 3, 4
	kind := disk.Data
	switch {
	case whence != seekData && whence != seekHole:
		return 0, syscall.EINVAL
	case off >= uint64(h.file.size):
		return 0, syscall.ENXIO
	case whence == seekHole:
		kind = disk.Zero
	}
	ctx, cancel := h.node.m.requestContext(ctx)
	defer cancel()
	at, found, err := h.file.seekKind(ctx, int64(off), kind)
	switch {
	case err != nil:
		return 0, h.readErrno(ctx, disk.Range{Off: int64(off)}, err)
	case !found:
		return 0, syscall.ENXIO
	}
	return uint64(at), fs.OK
}

// Bytes implements fuse.ReadResult.
func (r reply) Bytes([]byte) ([]byte, fuse.Status) { return r.data, fuse.OK }

// Size implements fuse.ReadResult.
func (r reply) Size() int { return len(r.data) }

// Done implements fuse.ReadResult.
func (r reply) Done() { r.releasePage() }
