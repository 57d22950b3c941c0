package nbd

import (
	"context"
	"math/bits"
	"sync"

	"golang.org/x/sync/semaphore"
)

// buffers lends memory, up to a limit. Free buffers are kept, and count, until others need the memory.
// It is safe for concurrent use.
type buffers struct {
	limit int64
	lent  *semaphore.Weighted // bytes that callers have

	mu   sync.Mutex              // guards the fields below
	used int64                   // bytes that callers have, and of free buffers
	free [maxClass + 1][]*buffer // free buffers by the logarithm of their size
}

// The sizes of buffers that are kept, as powers of two. Larger ones are rare.
const (
	minClass = 14 // 16 KiB
	maxClass = 20 // 1 MiB
)

// A buffer is memory that buffers has lent.
type buffer struct {
	data  []byte   // requested bytes
	whole []byte   // all bytes of the memory
	from  *buffers // owner of the memory
}

// newBuffers returns buffers that lend up to limit bytes.
func newBuffers(limit int64) *buffers {
	return &buffers{limit: limit, lent: semaphore.NewWeighted(limit)}
}

// get returns a buffer of n bytes with any content. It waits until that much memory is free. n must be
// at most maxServed.
func (b *buffers) get(ctx context.Context, n int) (*buffer, error) {
	class := max(bits.Len(uint(max(n, 1)-1)), minClass)
	size := n
	if class <= maxClass {
		size = 1 << class
	}
	if err := b.lent.Acquire(ctx, int64(size)); err != nil {
		return nil, err
	}
	m := b.takeFree(class, int64(size))
	if m == nil {
		m = &buffer{whole: make([]byte, size), from: b}
	}
	m.data = m.whole[:n]
	return m, nil
}

// takeFree returns a free buffer of that class. If there is none, it discards as many others as needed
// and returns nil.
func (b *buffers) takeFree(class int, size int64) *buffer {
	b.mu.Lock()
	defer b.mu.Unlock()
	if class <= maxClass {
		if m := b.popFree(class); m != nil {
			return m
		}
	}
	b.used += size
	for c := maxClass; c >= minClass && b.used > b.limit; {
		if m := b.popFree(c); m != nil {
			b.used -= int64(len(m.whole))
		} else {
			c--
		}
	}
	return nil
}

// popFree removes a free buffer of that class and returns it, nil if there is none. b.mu is locked.
func (b *buffers) popFree(class int) *buffer {
	list := b.free[class]
	if len(list) == 0 {
		return nil
	}
	m := list[len(list)-1]
	list[len(list)-1] = nil
	b.free[class] = list[:len(list)-1]
	return m
}

// release returns the memory.
func (m *buffer) release() {
	size := int64(len(m.whole))
	m.from.mu.Lock()
	if class := bits.Len(uint(size - 1)); class <= maxClass {
		m.from.free[class] = append(m.from.free[class], m)
	} else {
		m.from.used -= size
	}
	m.from.mu.Unlock()
	m.from.lent.Release(size)
}

// reserve waits until size bytes are free, for memory that the caller allocates.
func (b *buffers) reserve(ctx context.Context, size int64) error {
	if err := b.lent.Acquire(ctx, size); err != nil {
		return err
	}
	b.takeFree(maxClass+1, size)
	return nil
}

// unreserve returns size bytes that were reserved.
func (b *buffers) unreserve(size int64) {
	b.mu.Lock()
	b.used -= size
	b.mu.Unlock()
	b.lent.Release(size)
}
