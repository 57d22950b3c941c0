package qcow2

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

// BenchmarkFinish writes 128 MiB of tables, those of a full disk of 1 TiB.
func BenchmarkFinish(b *testing.B) {
	for i := 0; b.Loop(); i++ {
		im, err := Create(filepath.Join(b.TempDir(), strconv.Itoa(i)), 1<<40, Options{})
		if err != nil {
			b.Fatal(err)
		}
		im.used.Set(disk.Range{Len: im.size})
		if err := im.Finish(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
