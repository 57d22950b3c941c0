package transporttest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

// SparseFile writes the data of d to a file with holes, and returns its name.
func SparseFile(t *testing.T, d disk.Source) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk.raw"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(d.Size()); err != nil {
		t.Fatal(err)
	}
	extents, err := d.Extents(t.Context(), disk.Range{Len: d.Size()})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range extents {
		if e.Kind == disk.Zero {
			continue
		}
		b := make([]byte, e.Len)
		if err := d.ReadAt(t.Context(), b, e.Off); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(b, e.Off); err != nil {
			t.Fatal(err)
		}
	}
	return f.Name()
}
