package qcow2

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
	"github.com/decamp/decamp/internal/fault"
)

func TestUnfinishedConforms(t *testing.T) {
	disktest.TestSource(t, func(t *testing.T, want disk.Source) disk.Source {
		path := filepath.Join(t.TempDir(), "disk.qcow2")
		im, err := Create(path, want.Size(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { im.Close() })
		put(t, im, want)
		src, err := OpenUnfinished(path, SourceOptions{Direct: true})
		if err != nil {
			t.Fatal(err)
		}
		return src
	})
}

func TestUnfinishedIsForUnfinishedImagesOnly(t *testing.T) {
	dir := t.TempDir()
	finished := filepath.Join(dir, "finished.qcow2")
	im, err := Create(finished, 1<<20, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := im.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.qcow2")
	if err := os.WriteFile(cut, noteOf(t, 1<<20, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{finished, cut} {
		if _, err := OpenUnfinished(path, SourceOptions{}); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
}
