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

// TestFullFileSystem fills a small file system at every stage, the tables included, makes
// room and goes on.
func TestFullFileSystem(t *testing.T) {
	requires(t, "root")
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
		err := write(t, path, src)
		if !fault.Is(err, fault.Full) || !strings.Contains(fault.HintOf(err), dir) {
			t.Fatalf("room for %d: %v (%v)", room, err, fault.KindOf(err))
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSource(path, SourceOptions{}); !fault.Is(err, fault.Corrupt) {
			t.Errorf("room for %d: the half image opens: %v", room, err)
		}
		im, err := Open(path, Options{Size: size})
		if err != nil {
			t.Fatal(err)
		}
		put(t, im, src)
		if err := im.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		judge(t, path, src)
	}
}

// write makes a finished image of src, or closes what it has and returns the error.
func write(t *testing.T, path string, src disk.Source) error {
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
