package image

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
)

// A together is a source whose reads are answered once so many of them have come.
type together struct {
	disk.Source
	missing *atomic.Int64
	all     chan struct{} // closed by the last one that is missing
}

func (s together) ReadAt(ctx context.Context, p []byte, off int64) error {
	if s.missing.Add(-1) == 0 {
		close(s.all)
	}
	select {
	case <-s.all:
		return s.Source.ReadAt(ctx, p, off)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A busy source takes long for each read: those of a sample do not wait for each other.
func TestSampleIsReadAtOnce(t *testing.T) {
	r := newRig(t, Raw)
	r.stopAfter(3)
	src := together{disk.NewPattern(testSize), new(atomic.Int64), make(chan struct{})}
	src.missing.Store(3) // chunks 0, 1 and 2
	r.job.Source = func(context.Context) (disk.Source, error) { return src, nil }
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if _, _, err := r.job.Fill(ctx, r.copy(6)); err != nil {
		t.Fatal(err)
	}
}
