package disk

import "context"

// A Null is a Target that discards its data, for benchmarks of a Source alone.
type Null struct{ size int64 }

// NewNull returns a Null of size bytes.
func NewNull(size int64) Null { return Null{size} }

// Size returns the size of the disk in bytes.
func (n Null) Size() int64 { return n.size }

// WriteAt checks the range and discards p.
func (n Null) WriteAt(_ context.Context, p []byte, off int64) error {
	return CheckRange(n.size, Range{off, int64(len(p))})
}

// Zero checks r.
func (n Null) Zero(_ context.Context, r Range) error { return CheckRange(n.size, r) }

// Sync does nothing.
func (n Null) Sync(context.Context) error { return nil }

// Hints returns no preferences.
func (n Null) Hints() Hints { return Hints{} }

// Finish does nothing.
func (n Null) Finish(context.Context) error { return nil }

// Close does nothing.
func (n Null) Close() error { return nil }
