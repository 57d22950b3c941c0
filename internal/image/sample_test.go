package image

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
)

// barrierSource is a source whose reads wait until the given number of them has started.
type barrierSource struct {
	disk.Source
	missing *atomic.Int64 // reads that have not started
	all     chan struct{} // closed by the last read
}

func (s barrierSource) ReadAt(ctx context.Context, p []byte, off int64) error {
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

// The reads of a sample are concurrent, because a busy source may take long for each.
func TestSampleIsReadConcurrently(t *testing.T) {
	r := newTestJob(t, Raw)
	r.stopAfter(3)
	src := barrierSource{disk.NewPattern(testSize), new(atomic.Int64), make(chan struct{})}
	src.missing.Store(3) // chunks 0, 1 and 2
	r.job.Source = func(context.Context) (disk.Source, error) { return src, nil }
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if _, _, err := r.job.Fill(ctx, r.copyMissing(6)); err != nil {
		t.Fatal(err)
	}
}
