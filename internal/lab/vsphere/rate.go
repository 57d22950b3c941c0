package vsphere

import (
	"context"
	"sync"
	"time"
)

// burst is the time that a sender may catch up after a delay of the scheduler, so that the long-run
// rate is exact.
const burst = 20 * time.Millisecond

// A bucket limits a rate in real time. Senders that share a bucket are served in the order of their
// calls, so that equal pieces result in equal shares.
type bucket struct {
	mu   sync.Mutex   // guards all fields
	rate int64        // bytes/s; 0 is unlimited
	free time.Time    // time at which all reserved bytes have been sent
	sum  readCounters // counters of reservations
}

// totalRequested returns the counters of reservations.
func (b *bucket) totalRequested() readCounters {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sum
}

// newBucket returns a bucket for a rate in bytes/s; 0 is unlimited.
func newBucket(rate int64) *bucket { return &bucket{rate: rate} }

// setRate changes the rate and drops reservations.
func (b *bucket) setRate(rate int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rate, b.free = rate, time.Time{}
}

// reserveBytes reserves n bytes and returns how long to wait before sending them.
func (b *bucket) reserveBytes(n int, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sum.reads, b.sum.bytes = b.sum.reads+1, b.sum.bytes+int64(n)
	if b.rate == 0 {
		return 0
	}
	if b.free.Before(now.Add(-burst)) { // idle time beyond the burst is lost
		b.free = now.Add(-burst)
	}
	wait := b.free.Sub(now)
	b.free = b.free.Add(time.Duration(float64(n) / float64(b.rate) * float64(time.Second)))
	return max(0, wait)
}

// pieceSize returns the number of bytes to send at a time: a quarter of the burst, 4 KiB to bufferSize.
func (b *bucket) pieceSize() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate == 0 {
		return bufferSize
	}
	quarter := b.rate * int64(burst/4) / int64(time.Second)
	return int(min(bufferSize, max(4<<10, quarter/4096*4096)))
}

// sleepContext waits for d of real time, or until ctx ends, whose error it returns.
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
