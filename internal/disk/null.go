package disk

import "context"

// Null is a Target that discards its data: the other end of a benchmark of a Source alone.
type Null struct{ size int64 }

// NewNull returns a Null of size bytes.
func NewNull(size int64) Null { return Null{size} }

func (n Null) Size() int64 { return n.size }
func (n Null) WriteAt(_ context.Context, p []byte, off int64) error {
	return CheckRange(n.size, Range{off, int64(len(p))})
}
func (n Null) Zero(_ context.Context, r Range) error { return CheckRange(n.size, r) }
func (n Null) Sync(context.Context) error            { return nil }
func (n Null) Hints() Hints                          { return Hints{} }
func (n Null) Finish(context.Context) error          { return nil }
func (n Null) Close() error                          { return nil }
