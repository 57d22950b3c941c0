package blockcopy

import (
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// BenchmarkCopy measures Copy with a source and a target that take almost no time.
func BenchmarkCopy(b *testing.B) {
	const size = 1 << 30
	for _, hashed := range []bool{false, true} {
		name := "plain"
		if hashed {
			name = "manifest"
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				var o Options
				if hashed {
					o.Manifest = benchLog(b, size)
				}
				if _, err := Copy(b.Context(), disk.NewPattern(size), disk.NewNull(size), o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchLog(b *testing.B, size int64) *manifest.Log {
	log, err := manifest.Create(filepath.Join(b.TempDir(), "m"), manifest.Info{Disk: "bench", Size: size})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { log.Close() })
	return log
}
