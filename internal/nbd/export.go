package nbd

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// A Reader is the disk of an export. It is a part of disk.Source. It must be safe for concurrent use.
type Reader interface {
	// Size returns the size in bytes. It never changes.
	Size() int64

	// ReadAt fills p from off, or returns an error.
	ReadAt(ctx context.Context, p []byte, off int64) error

	// Extents describes r in order and without gaps.
	Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error)
}

// A Viewer is a Reader that has bytes in memory, which are sent without a copy.
type Viewer interface {
	// View returns the len(dest) bytes at off. They may be in dest. They are valid until release, which is
	// never nil.
	View(ctx context.Context, dest []byte, off int64) (data []byte, release func(), err error)
}

// A Writer is a Reader that clients may write to. It must be safe for concurrent use.
type Writer interface {
	// WriteAt writes all of p at off. It may still be volatile on return.
	WriteAt(ctx context.Context, p []byte, off int64) error

	// Sync returns when all data that was written before it survives a power loss.
	Sync(ctx context.Context) error
}

// An Export is a disk that a Server serves.
type Export struct {
	Name        string // name that clients request; unique
	Description string // text for lists of exports; may be empty
	Disk        Reader // disk; it may be a Viewer and a Writer as well
	ReadOnly    bool   // writes are refused even if Disk is a Writer
}

// export is an Export in service.
type export struct {
	Export
	size   int64        // size of the disk in bytes
	viewer Viewer       // the disk; nil if it is no Viewer
	writer Writer       // the disk; nil if clients may not write
	mapped atomic.Bool  // Extents has returned once, so it is quick from now on
	logged atomic.Int64 // time of the last logged error in Unix seconds
	log    *slog.Logger
	now    func() time.Time // clock of logged
}

// newExports checks exports and prepares them for service.
func newExports(list []Export, log *slog.Logger, now func() time.Time) ([]*export, error) {
	if len(list) == 0 {
		return nil, fault.New(fault.Invalid, "the NBD server has no export")
	}
	seen := map[string]bool{}
	var out []*export
	for _, e := range list {
		for _, text := range []string{e.Name, e.Description} {
			if len(text) > maxString || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
				return nil, fault.New(fault.Invalid, "the NBD export %q has a name or a description that is longer than %d bytes, is not UTF-8 or contains a zero byte", e.Name, maxString)
			}
		}
		if seen[e.Name] {
			return nil, fault.New(fault.Invalid, "two NBD exports have the name %q", e.Name)
		}
		seen[e.Name] = true
		x := &export{Export: e, size: e.Disk.Size(), log: log, now: now}
		x.viewer, _ = e.Disk.(Viewer)
		if !e.ReadOnly {
			x.writer, _ = e.Disk.(Writer)
		}
		out = append(out, x)
	}
	return out, nil
}

// transmissionFlags returns the transmission flags of the export.
func (x *export) transmissionFlags(structured bool) uint16 {
	flags := uint16(hasFlags | multiConn)
	if x.writer != nil {
		flags |= sendFlush
	} else {
		flags |= readOnly
	}
	if structured {
		flags |= sendDF
	}
	return flags
}

// contains reports whether length bytes at off are within the disk.
func (x *export) contains(off uint64, length uint32) bool {
	size := uint64(x.size)
	return off <= size && uint64(length) <= size-off
}

// readPiece returns the bytes of r, which must be within the disk. They are valid until release, which
// is nil after an error.
func (x *export) readPiece(ctx context.Context, memory *buffers, r disk.Range) (data []byte, release func(), err error) {
	buf, err := memory.get(ctx, int(r.Len))
	if err != nil {
		return nil, nil, err
	}
	if x.viewer == nil {
		if err := x.Disk.ReadAt(ctx, buf.data, r.Off); err != nil {
			buf.release()
			return nil, nil, err
		}
		return buf.data, buf.release, nil
	}
	data, free, err := x.viewer.View(ctx, buf.data, r.Off)
	if err == nil && int64(len(data)) != r.Len {
		err = fault.New(fault.Internal, "%d bytes instead of %d were read at %d", len(data), r.Len, r.Off)
	}
	switch {
	case err != nil:
		free()
		buf.release()
		return nil, nil, err
	case r.Len > 0 && &data[0] != &buf.data[0]:
		buf.release() // unused
		return data, free, nil
	}
	return data, func() { free(); buf.release() }, nil
}

// Extents are requested in windows that grow, because some disks have very many.
const (
	firstWindow  = 1 << 20  // length of the first window in bytes
	lastWindow   = 16 << 20 // length of the largest window in bytes
	maxExtents   = 4096     // enough extents for one block status
	statusMemory = 1 << 20  // memory of a block status in bytes, if a window has 32,768 extents of a sector
	worthHole    = 4096     // shortest hole in bytes that a read sends as a hole
)

// blockStatus describes the beginning of r, which must not be empty, with about maxExtents extents,
// or with one. Neighbours have different kinds. Without a map of the disk, all of r is data.
func (x *export) blockStatus(ctx context.Context, r disk.Range, one bool) []disk.Extent {
	var out []disk.Extent
	window := int64(firstWindow)
	for at := r.Off; at < r.End() && len(out) < maxExtents && !(one && len(out) > 1); window = min(4*window, lastWindow) {
		part := disk.Range{Off: at, Len: min(window, r.End()-at)}
		extents, err := x.Disk.Extents(ctx, part)
		if err == nil {
			x.mapped.Store(true)
		} else if ctx.Err() == nil {
			x.logError("the block status is unknown", part, err)
		}
		if err != nil {
			extents = []disk.Extent{{Range: part, Kind: disk.Data}}
		}
		for _, e := range extents {
			out = disk.AppendExtent(out, e)
		}
		at = part.End()
	}
	if one {
		return out[:1]
	}
	return out
}

// knownZeros describes r for a read: short holes are data. All of r is data until a client has requested
// a block status, because the first request of a map may be slow.
func (x *export) knownZeros(ctx context.Context, r disk.Range) []disk.Extent {
	var out []disk.Extent
	if x.mapped.Load() {
		extents, _ := x.Disk.Extents(ctx, r) // all is data after an error, and will be read
		for _, e := range extents {
			if e.Kind == disk.Zero && e.Len < worthHole {
				e.Kind = disk.Data
			}
			out = disk.AppendExtent(out, e)
		}
	}
	if len(out) == 0 {
		return []disk.Extent{{Range: r, Kind: disk.Data}}
	}
	return out
}

// logError logs an error of the disk, at most once a second, because a client may repeat its request
// without end.
func (x *export) logError(message string, r disk.Range, err error) {
	now, last := x.now().Unix(), x.logged.Load()
	if now > last && x.logged.CompareAndSwap(last, now) {
		x.log.Error(message, "export", x.Name, "off", r.Off, "len", r.Len, "err", err)
	}
}
