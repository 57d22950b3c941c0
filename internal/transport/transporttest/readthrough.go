package transporttest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/readahead"
)

// ReadThrough reads a whole disk as the clients of an export do, and closes it: four parts in parallel and
// in order, with small random reads at the same time, through package readahead. It compares all bytes
// with want, and fails the test for any error. It calls each step once, at equal distances of progress.
func ReadThrough(t *testing.T, src, want disk.Source, steps ...func()) {
	t.Helper()
	const parts, step = 4, 256 << 10
	cache := readahead.New(readahead.ExportOptions())
	file := cache.Open(context.WithoutCancel(t.Context()), "disk", src)
	defer func() {
		if err := errors.Join(file.Close(), cache.Close()); err != nil {
			t.Error(err)
		}
	}()
	var done atomic.Int64
	once := make([]sync.Once, len(steps))
	compare := func(r disk.Range) bool {
		got, expected := make([]byte, r.Len), make([]byte, r.Len)
		err := errors.Join(file.ReadAt(t.Context(), got, r.Off), want.ReadAt(t.Context(), expected, r.Off))
		if err != nil || !bytes.Equal(got, expected) {
			t.Errorf("the bytes of %v are wrong, or: %v", r, err)
			return false
		}
		return true
	}
	var sequential, random sync.WaitGroup
	size := src.Size()
	for i := range int64(parts) {
		sequential.Go(func() {
			for off := size * i / parts / step * step; off < size && off < size*(i+1)/parts; off += step {
				n := min(step, size-off)
				if !compare(disk.Range{Off: off, Len: n}) {
					return
				}
				sum := done.Add(n)
				for j, do := range steps {
					if sum > size*int64(j+1)/int64(len(steps)+1) {
						once[j].Do(do)
					}
				}
			}
		})
	}
	ended := make(chan struct{})
	random.Go(func() {
		rnd := rand.New(rand.NewPCG(1, 2))
		for {
			select {
			case <-ended:
				return
			default:
				compare(disk.Range{Off: rnd.Int64N(size>>12) << 12, Len: 4 << 10})
			}
		}
	})
	sequential.Wait()
	close(ended)
	random.Wait()
}
