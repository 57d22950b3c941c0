package vsphere

import (
	"context"
	"sync"
	"time"
)

// burst is how far a sender may catch up after it slept too long; the long-run rate stays
// exact while the scheduler is late now and then.
const burst = 20 * time.Millisecond

// A bucket caps a flow. Senders that share one are served in the order they ask, so equal
// pieces make equal shares. It uses real time.
type bucket struct {
	mu   sync.Mutex
	rate int64     // bytes/s; 0 is no cap
	free time.Time // when everything granted so far has been sent
	sum  readCounters      // counters of requested bytes
}

// totalRequested is all that was asked for.
func (b *bucket) totalRequested() readCounters {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sum
}

func newBucket(rate int64) *bucket { return &bucket{rate: rate} }

func (b *bucket) setRate(rate int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rate, b.free = rate, time.Time{}
}

// reserveBytes grants n bytes and returns how long to wait before sending them.
func (b *bucket) reserveBytes(n int, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sum.reads, b.sum.bytes = b.sum.reads+1, b.sum.bytes+int64(n)
	if b.rate == 0 {
		return 0
	}
	if b.free.Before(now.Add(-burst)) {
		b.free = now.Add(-burst)
	}
	wait := b.free.Sub(now)
	b.free = b.free.Add(time.Duration(float64(n) / float64(b.rate) * float64(time.Second)))
	return max(0, wait)
}

// pieceSize is how much to send at a time: a quarter of the burst, within bounds.
func (b *bucket) pieceSize() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate == 0 {
		return bufferSize
	}
	quarter := b.rate * int64(burst/4) / int64(time.Second)
	return int(min(bufferSize, max(4<<10, quarter/4096*4096)))
}

// sleepContext waits for d of real time, or until ctx ends.
func sleepContext(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
