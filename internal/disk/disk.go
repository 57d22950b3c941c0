// Package disk defines the interfaces of a disk's bytes: a Source to read from, a Target to write to,
// and Ranges and Extents to describe them.
//
// A Source is one disk at one point in time. A Target is its image. Transports provide Sources, image
// formats provide Targets, and package blockcopy copies between them.
//
// The package also has disks for tests and benchmarks: Pattern (a Source whose words contain their
// offsets), Check (a Target that compares its data with a Source) and Null (a Target that discards
// data).
//
// All offsets and lengths are in bytes. Disk sizes are multiples of 512; nothing here requires more.
package disk

import (
	"context"
	"fmt"
	"io"
	"sort"
)

// SectorSize is the logical sector of every virtual disk VMware makes, in bytes.
const SectorSize = 512

// A Range is the bytes [Off, Off+Len) of a disk.
type Range struct {
	Off int64 // offset of the first byte
	Len int64 // number of bytes
}

// End returns the offset of the first byte after r.
func (r Range) End() int64 { return r.Off + r.Len }

// Empty reports whether r contains no byte.
func (r Range) Empty() bool { return r.Len <= 0 }

// Intersect returns the bytes that r and s have in common. The result is empty if there are none.
func (r Range) Intersect(s Range) Range {
	off, end := max(r.Off, s.Off), min(r.End(), s.End())
	if end <= off {
		return Range{Off: off}
	}
	return Range{Off: off, Len: end - off}
}

// String returns the range as [off, end) in bytes.
func (r Range) String() string { return fmt.Sprintf("[%d, %d)", r.Off, r.End()) }

// Kind is the kind of an Extent's content.
type Kind uint8

const (
	Data Kind = iota // must be read; the zero value, because it is always correct
	Zero             // reads as zeros
)

// String returns "data" or "zero".
func (k Kind) String() string {
	if k == Zero {
		return "zero"
	}
	return "data"
}

// An Extent is a Range that is data or zero.
type Extent struct {
	Range
	Kind Kind // kind of all its bytes
}

// Describe converts data, ordered ranges without overlaps, into extents that describe r without gaps:
// the gaps between them are zero.
func Describe(r Range, data []Range) []Extent {
	var out []Extent
	at := r.Off
	first := sort.Search(len(data), func(i int) bool { return data[i].End() > r.Off })
	for _, d := range data[first:] {
		if d = d.Intersect(r); d.Empty() {
			break
		}
		if d.Off > at {
			out = append(out, Extent{Range{at, d.Off - at}, Zero})
		}
		out = append(out, Extent{d, Data})
		at = d.End()
	}
	if at < r.End() {
		out = append(out, Extent{Range{at, r.End() - at}, Zero})
	}
	return out
}

// AppendExtent appends e to list, or extends the last extent if it has the same kind. e must follow the last
// extent.
func AppendExtent(list []Extent, e Extent) []Extent {
	if n := len(list); n > 0 && list[n-1].Kind == e.Kind {
		list[n-1].Len += e.Len
		return list
	}
	return append(list, e)
}

// Hints are the preferences of a Source or Target for requests. They are advice: a caller that ignores
// them is slower, but gets the same result. Zero fields mean no preference.
type Hints struct {
	// Request is the preferred size of one ReadAt or WriteAt.
	Request int64

	// Streams is how many calls in parallel are still useful.
	Streams int

	// Span is how many consecutive bytes one Stream should cover: long enough to
	// hide the latency of a request, short enough that the end of a disk balances.
	Span int64

	// Align is the alignment of offset, length and memory that lets a Target take
	// the fast path (O_DIRECT). A last partial sector may be shorter.
	Align int

	// Stream opens a range of a Source for one pass from front to back, if that is cheaper than many
	// ReadAts (the body of one HTTP request). It may wait for a free connection; it returns when the
	// first bytes are near. The caller reads to the end or closes early, from one goroutine. A clean
	// io.EOF comes only after the last byte of the range. nil means that ReadAt is equally fast.
	Stream func(ctx context.Context, r Range) (io.ReadCloser, error)
}

// A Source reads one disk as it was at one point in time. It must be safe for concurrent use.
type Source interface {
	// Size returns the virtual size in bytes. It never changes.
	Size() int64

	// ReadAt fills p from off. It returns an error rather than a short read, also
	// when the range does not lie within the disk.
	ReadAt(ctx context.Context, p []byte, off int64) error

	// Extents describes r in order and without gaps. Callers request a window
	// at a time: some sources take minutes to describe a whole disk. Neighbouring
	// extents may have the same Kind.
	Extents(ctx context.Context, r Range) ([]Extent, error)

	// Hints returns the source's preferences for reads. They are advice, not limits.
	Hints() Hints

	// Close releases the source. No other method may be running or called after it.
	Close() error
}

// A Target receives the content of one disk. WriteAt and Zero must be safe for concurrent use with
// ranges that do not overlap. A Target does not keep p after WriteAt returns.
type Target interface {
	// Size returns the virtual size in bytes. It never changes.
	Size() int64

	// WriteAt writes all of p at off. It may still be volatile on return.
	WriteAt(ctx context.Context, p []byte, off int64) error

	// Zero makes r read as zeros, by the cheapest means of the target. An image in which r was never
	// written need not change.
	Zero(ctx context.Context, r Range) error

	// Sync returns when all data that was written before it survives a power loss.
	Sync(ctx context.Context) error

	// Hints returns the target's preferences for writes. They are advice, not limits.
	Hints() Hints

	// Finish syncs and completes the image.
	Finish(ctx context.Context) error

	// Close releases the target. Without Finish it leaves an unfinished image
	// that a later run can resume. After Finish it does nothing.
	Close() error
}

// CheckRange returns an error unless r lies within a disk of size bytes. Sources and Targets call it
// first, so that all report a wrong offset with the same error.
func CheckRange(size int64, r Range) error {
	if r.Off < 0 || r.Len < 0 || r.Off > size || r.Len > size-r.Off {
		return fmt.Errorf("range %v is outside the disk of %d bytes", r, size)
	}
	return nil
}
