// Package behind takes the writes of a disk that is being landed, in any order, says that
// they are held once they are in memory, and writes them behind in large runs.
package behind

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// MaxBuffer is the largest Buffer, in bytes: what one write may carry.
const MaxBuffer = 1 << 20

// A Pool lends aligned memory under a hard budget that all files share.
type Pool struct {
	budget int64
	bytes  *semaphore.Weighted
}

// NewPool returns a Pool that never has more than budget bytes, and at least MaxBuffer.
func NewPool(budget int64) *Pool {
	budget = max(budget, MaxBuffer)
	return &Pool{budget: budget, bytes: semaphore.NewWeighted(budget)}
}

// Get lends a buffer of n bytes, MaxBuffer at most. It waits while the budget is used up,
// which is what slows whoever sends down to the speed of the target.
func (p *Pool) Get(ctx context.Context, n int) (*Buffer, error) {
	if n < 0 || n > MaxBuffer {
		return nil, fault.New(fault.Unsupported, "a write of %d bytes: at most %d", n, MaxBuffer)
	}
	size := int64(n+disk.MemoryAlign-1) &^ (disk.MemoryAlign - 1)
	if err := p.bytes.Acquire(ctx, size); err != nil {
		return nil, err
	}
	b := &Buffer{pool: p, memory: disk.AlignedMemory(size), n: n}
	b.refs.Store(1)
	return b, nil
}

func (p *Pool) put(b *Buffer) { p.bytes.Release(int64(len(b.memory))) }
