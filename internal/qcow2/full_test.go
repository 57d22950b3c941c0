package qcow2

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// TestFullFileSystem runs out of space at several stages, including the tables. After space is freed, the image
// resumes.
func TestFullFileSystem(t *testing.T) {
	skipWithout(t, "root")
	const size = 4 << 20
	src := disk.NewPattern(size)
	for _, room := range []int{8 << 10, 1 << 20, size + 8<<10, size + 160<<10} {
		dir := t.TempDir()
		if err := unix.Mount("none", dir, "tmpfs", 0, "size=10m"); err != nil {
			t.Skipf("needs to mount tmpfs, which the kernel refuses: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Errorf("unmount: %v", err)
			}
		})
		ballast, path := filepath.Join(dir, "ballast"), filepath.Join(dir, "disk.qcow2")
		if err := os.WriteFile(ballast, make([]byte, 10<<20-room), 0o600); err != nil {
			t.Fatal(err)
		}
		err := writeImage(t, path, src)
		if !fault.Is(err, fault.Full) || !strings.Contains(fault.HintOf(err), dir) {
			t.Fatalf("%d bytes free: %v (%v)", room, err, fault.KindOf(err))
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSource(path, SourceOptions{}); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%d bytes free: opening the partial image: got %v, want a corrupt error", room, err)
		}
		im, err := Open(path, Options{Size: size})
		if err != nil {
			t.Fatal(err)
		}
		copyDisk(t, im, src)
		if err := im.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkWithQEMU(t, path, src)
	}
}

// writeImage writes a finished image of src. On an error it closes the image and returns the error.
func writeImage(t *testing.T, path string, src disk.Source) error {
	t.Helper()
	im, err := Create(path, src.Size(), Options{})
	if err != nil {
		return err
	}
	err = copyRange(t, im, src, disk.Range{Len: src.Size()})
	if err == nil {
		err = im.Finish(t.Context())
	}
	return errors.Join(err, im.Close())
}
