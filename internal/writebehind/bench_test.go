package writebehind

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// BenchmarkWrite measures the package with a GiB in writes of 64 KiB, and a target that discards the data.
// Placed writes are hashed in their buffers, others are gathered first.
func BenchmarkWrite(b *testing.B) {
	for _, c := range []struct {
		name   string
		disk   uint64
		hashed bool
	}{{"gathered", 0, false}, {"placed", 1, false}, {"gathered, hashed", 0, true}, {"placed, hashed", 1, true}} {
		b.Run(c.name, func(b *testing.B) {
			const size, piece = 1 << 30, 64 << 10
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				var log manifest.Ledger
				if c.hashed {
					log = benchLog(b, size)
				}
				if err := landBytes(b.Context(), log, c.disk, size, piece); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchLog(b *testing.B, size int64) *manifest.Log {
	log, err := manifest.Create(filepath.Join(b.TempDir(), "manifest"), manifest.Info{Disk: "bench", Size: size})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { log.Close() })
	return log
}

// landBytes writes size bytes in buffers of piece bytes to a file whose target discards them.
func landBytes(ctx context.Context, log manifest.Ledger, number uint64, size int64, piece int) error {
	pool := NewPool(64 << 20)
	f, err := New(disk.NewNull(size), log, pool, Options{Fresh: true})
	if err != nil {
		return err
	}
	defer f.Close()
	payload := bytes.Repeat([]byte{0xdc}, piece)
	for off := int64(0); off < size; off += int64(piece) {
		b, err := pool.GetAt(ctx, piece, DiskOffset{Disk: number, Off: off})
		if err != nil {
			return err
		}
		copy(b.Bytes(), payload)
		if err := f.Write(ctx, b, off); err != nil {
			return err
		}
	}
	return f.Commit(ctx)
}
