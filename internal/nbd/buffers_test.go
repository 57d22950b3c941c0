package nbd

import (
	"context"
	"errors"
	"testing"
)

// freeBytes returns the total size of the free buffers.
func (b *buffers) freeBytes() (n int64) {
	for _, list := range b.free {
		for _, m := range list {
			n += int64(len(m.whole))
		}
	}
	return n
}

// Free buffers are used again, and are discarded for buffers of other sizes. The memory never exceeds the limit.
func TestBuffersStayWithinLimit(t *testing.T) {
	b := newBuffers(maxServed)
	var all []*buffer
	for range maxServed >> 16 {
		m, err := b.get(t.Context(), 40_000) // 64 KiB
		if err != nil || len(m.data) != 40_000 {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() {
		_, err := b.get(ctx, 1)
		waits <- err
	}()
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("get without free memory: error %v, want Canceled", err)
	}
	for _, m := range all {
		m.release()
	}
	if b.used != maxServed || b.freeBytes() != maxServed {
		t.Errorf("%d bytes are used, %d free, want %d each", b.used, b.freeBytes(), maxServed)
	}
	again, err := b.get(t.Context(), 65536)
	if err != nil || b.used != maxServed || b.freeBytes() != maxServed-65536 {
		t.Errorf("get: error %v, %d bytes free, want the use of a free buffer", err, b.freeBytes())
	}
	again.release()
	if err := b.reserve(t.Context(), 1<<20); err != nil || b.used != maxServed || b.freeBytes() != maxServed-1<<20 {
		t.Errorf("reserve: error %v, %d bytes used, %d free", err, b.used, b.freeBytes())
	}
	b.unreserve(1 << 20)
	large, err := b.get(t.Context(), maxServed)
	if err != nil || b.used != maxServed || b.freeBytes() != 0 {
		t.Errorf("get of all memory: error %v, %d bytes used, %d free", err, b.used, b.freeBytes())
	}
	large.release()
	if b.used != 0 {
		t.Errorf("%d bytes are used at the end, want 0", b.used)
	}
}
