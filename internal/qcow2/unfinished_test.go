package qcow2

import (
	"bytes"
	"errors"
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
		copyDisk(t, im, want)
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
			t.Errorf("%s: got %v, want a corrupt error", filepath.Base(path), err)
		}
	}
}

// Unfinish restores an image whose tables are unreadable. It refuses a file whose layout does not match the
// size.
func TestUnfinish(t *testing.T) {
	src := disk.NewSparsePattern(24<<20+512, 0.5, 3)
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	mustWriteImage(t, path, src)
	l, err := newLayout(src.Size())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt(bytes.Repeat([]byte{0xdb}, int(l.data.Off)), 0)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := Unfinish(path, src.Size()+64<<20); !fault.Is(err, fault.Conflict) {
		t.Errorf("Unfinish with a wrong size: got %v, want a conflict", err)
	}
	if err := Unfinish(path, src.Size()); err != nil {
		t.Fatal(err)
	}
	im, err := Open(path, Options{Size: src.Size()})
	if err != nil {
		t.Fatal(err)
	}
	if err := im.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := openDamaged(t, path).checkTables(t, src.Size()); err != nil {
		t.Error(err)
	}
	checkWithQEMU(t, path, src)
}
