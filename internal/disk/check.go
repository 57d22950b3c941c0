package disk

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
)

// A Check is a Target that stores nothing. It compares every write with a Source, and Finish fails
// unless every byte was written or zeroed exactly once. It verifies a copy of any size with 4 bytes of
// memory per MiB of disk.
type Check struct {
	want    Source         // expected content of the disk
	covered []atomic.Int32 // number of bytes that were written or zeroed, for each checkGrain of the disk
}

// checkGrain is the unit in which Check counts bytes, in bytes.
const checkGrain = 1 << 20

// NewCheck returns a Check that expects the content of want.
func NewCheck(want Source) *Check {
	return &Check{want: want, covered: make([]atomic.Int32, (want.Size()+checkGrain-1)/checkGrain)}
}

// Size returns the size of the expected disk.
func (c *Check) Size() int64 { return c.want.Size() }

// Hints returns no preferences.
func (c *Check) Hints() Hints { return Hints{} }

// WriteAt compares b with the expected content and names the first byte that differs.
func (c *Check) WriteAt(ctx context.Context, b []byte, off int64) error {
	r := Range{off, int64(len(b))}
	if err := CheckRange(c.Size(), r); err != nil {
		return err
	}
	if err := c.compareBytes(ctx, b, off); err != nil {
		return err
	}
	return c.countBytes(r)
}

// Zero fails unless the expected content of r is zeros.
func (c *Check) Zero(ctx context.Context, r Range) error {
	if err := CheckRange(c.Size(), r); err != nil {
		return err
	}
	extents, err := c.want.Extents(ctx, r)
	if err != nil {
		return err
	}
	for _, e := range extents {
		if e.Kind == Zero {
			continue
		}
		if err := c.compareZero(ctx, e.Range); err != nil {
			return err
		}
	}
	return c.countBytes(r)
}

// compareZero fails unless all bytes of r, which the source reports as data, are zeros.
func (c *Check) compareZero(ctx context.Context, r Range) error {
	zero := make([]byte, min(r.Len, checkGrain))
	for off := r.Off; off < r.End(); off += checkGrain {
		if err := c.compareBytes(ctx, zero[:min(checkGrain, r.End()-off)], off); err != nil {
			return err
		}
	}
	return nil
}

// compareBytes compares got with the content at off, and returns an error that names the first
// difference.
func (c *Check) compareBytes(ctx context.Context, got []byte, off int64) error {
	if p, ok := c.want.(*Pattern); ok && p.isEqual(got, off) {
		return nil
	}
	want := make([]byte, len(got))
	if err := c.want.ReadAt(ctx, want, off); err != nil {
		return err
	}
	if bytes.Equal(want, got) {
		return nil
	}
	i := 0
	for want[i] == got[i] {
		i++
	}
	return fmt.Errorf("wrong byte at %d: got %#02x, want %#02x", off+int64(i), got[i], want[i])
}

// isEqual compares got with the content at off, without a second buffer. If it returns false, the
// content may still be equal.
func (p *Pattern) isEqual(got []byte, off int64) bool {
	same := true
	p.eachExtent(Range{off, int64(len(got))}, func(e Extent) {
		same = same && e.Kind == Data && wordsMatch(got[e.Off-off:e.End()-off], e.Off)
	})
	return same
}

// countBytes counts the bytes of r. It fails if a byte must have been counted before.
func (c *Check) countBytes(r Range) error {
	for off := r.Off; off < r.End(); {
		grain := off / checkGrain
		end := min((grain+1)*checkGrain, r.End())
		if c.covered[grain].Add(int32(end-off)) > c.grainLen(grain) {
			return fmt.Errorf("%v was written twice", Range{grain * checkGrain, int64(c.grainLen(grain))})
		}
		off = end
	}
	return nil
}

// grainLen returns the length of a grain, which is shorter at the end of the disk.
func (c *Check) grainLen(grain int64) int32 {
	return int32(min(checkGrain, c.Size()-grain*checkGrain))
}

// Sync does nothing, because nothing is stored.
func (c *Check) Sync(context.Context) error { return nil }

// Finish fails unless the whole disk was covered.
func (c *Check) Finish(context.Context) error {
	for grain := range c.covered {
		want := c.grainLen(int64(grain))
		if got := c.covered[grain].Load(); got != want {
			return fmt.Errorf("only %d of %d bytes were written at %d", got, want, int64(grain)*checkGrain)
		}
	}
	return nil
}

// Close does nothing.
func (c *Check) Close() error { return nil }
