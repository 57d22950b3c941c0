package nbd

import (
	"context"
	"math/bits"
	"sync"

	"golang.org/x/sync/semaphore"
)

// buffers lends memory, up to a limit. It is safe for concurrent use.
type buffers struct {
	limit *semaphore.Weighted
	pools [maxClass + 1]sync.Pool // free buffers by the logarithm of their size
}

// The sizes of buffers that are used again, as powers of two. Larger ones are rare.
const (
	minClass = 12 // 4 KiB
	maxClass = 20 // 1 MiB
)

// A buffer is memory that buffers has lent.
type buffer struct {
	data  []byte // the requested bytes
	whole []byte // all bytes of the memory
	from  *buffers
}

// newBuffers returns buffers that lend up to limit bytes.
func newBuffers(limit int64) *buffers {
	return &buffers{limit: semaphore.NewWeighted(limit)}
}

// get returns a buffer of n bytes with any content. It waits until that much memory is free. n must be
// at most maxServed.
func (b *buffers) get(ctx context.Context, n int) (*buffer, error) {
	class := max(bits.Len(uint(max(n, 1)-1)), minClass)
	size := n
	if class <= maxClass {
		size = 1 << class
	}
	if err := b.limit.Acquire(ctx, int64(size)); err != nil {
		return nil, err
	}
	if class <= maxClass {
		if free, ok := b.pools[class].Get().(*buffer); ok {
			free.data = free.whole[:n]
			return free, nil
		}
	}
	whole := make([]byte, size)
	return &buffer{data: whole[:n], whole: whole, from: b}, nil
}

// release returns the memory.
func (m *buffer) release() {
	size := len(m.whole)
	if size <= 1<<maxClass {
		m.from.pools[bits.Len(uint(size-1))].Put(m)
	}
	m.from.limit.Release(int64(size))
}
