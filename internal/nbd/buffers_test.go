package nbd

import (
	"context"
	"errors"
	"testing"
)

// held returns the bytes of all buffers, lent and free.
func (b *buffers) held() (n int64) {
	for _, list := range b.free {
		for _, m := range list {
			n += int64(len(m.whole))
		}
	}
	return n
}

// Free buffers are used again, and make room for others. There is never more memory than the limit.
func TestBuffersStayWithinTheirLimit(t *testing.T) {
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
		t.Errorf("%v", err)
	}
	for _, m := range all {
		m.release()
	}
	if b.used != maxServed || b.held() != maxServed {
		t.Errorf("%d bytes are used, %d free", b.used, b.held())
	}
	again, err := b.get(t.Context(), 65536)
	if err != nil || b.used != maxServed || b.held() != maxServed-65536 {
		t.Errorf("a free buffer was not used: %v, %d", err, b.held())
	}
	again.release()
	if err := b.reserve(t.Context(), 1<<20); err != nil || b.used != maxServed || b.held() != maxServed-1<<20 {
		t.Errorf("%v: %d bytes are used, %d free", err, b.used, b.held())
	}
	b.unreserve(1 << 20)
	large, err := b.get(t.Context(), maxServed)
	if err != nil || b.used != maxServed || b.held() != 0 {
		t.Errorf("%v: %d bytes are used, %d free", err, b.used, b.held())
	}
	large.release()
	if b.used != 0 {
		t.Errorf("%d bytes are used", b.used)
	}
}
