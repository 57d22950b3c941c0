package rawfile

import (
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
)

// BenchmarkWrite writes and syncs half a GiB of data of a disk of 1 GiB, by request size and mode. It
// reports the bytes of the data.
func BenchmarkWrite(b *testing.B) {
	src := disk.NewSparsePattern(1<<30, 0.55, 1)
	for _, m := range modes {
		for _, request := range []int64{1 << 20, 4 << 20} {
			b.Run(m.String()+" "+strconv.FormatInt(request>>20, 10)+" MiB", func(b *testing.B) {
				var data int64
				before := cpuTime(b)
				for i := 0; b.Loop(); i++ {
					f, err := Create(filepath.Join(b.TempDir(), strconv.Itoa(i)), src.Size(), Options{Mode: m})
					if err != nil {
						b.Fatal(err)
					}
					data = writeConcurrently(b, f, src, request)
				}
				b.SetBytes(data)
				gib := float64(data) * float64(b.N) / (1 << 30)
				b.ReportMetric((cpuTime(b)-before).Seconds()/gib, "cpu-s/GiB")
			})
		}
	}
}

// cpuTime returns the user and system time of this process.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// writeConcurrently copies src to dst with the number of streams in the hints of dst, and finishes dst. It returns
// the number of bytes of data.
func writeConcurrently(b *testing.B, dst disk.Target, src disk.Source, request int64) int64 {
	extents, err := src.Extents(b.Context(), disk.Range{Len: src.Size()})
	if err != nil {
		b.Fatal(err)
	}
	var next, data atomic.Int64
	var g errgroup.Group
	for range dst.Hints().Streams {
		g.Go(func() error {
			p := disk.AlignedMemory(request)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(extents) {
					return nil
				}
				if extents[i].Kind == disk.Zero {
					continue
				}
				data.Add(extents[i].Len)
				for off := extents[i].Off; off < extents[i].End(); off += request {
					q := p[:min(request, extents[i].End()-off)]
					if err := src.ReadAt(b.Context(), q, off); err != nil {
						return err
					}
					if err := dst.WriteAt(b.Context(), q, off); err != nil {
						return err
					}
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	if err := dst.Finish(b.Context()); err != nil {
		b.Fatal(err)
	}
	return data.Load()
}
