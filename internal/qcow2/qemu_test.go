package qcow2

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
)

// skipWithout skips the test if a program is not in PATH, or without root privileges if name is "root".
func skipWithout(t testing.TB, name string) {
	t.Helper()
	if name == "root" {
		if os.Geteuid() != 0 {
			t.Skip("needs root, to mount file systems")
		}
		return
	}
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("needs %s in PATH", name)
	}
}

// qemuImg runs qemu-img, requires success, and returns the output.
func qemuImg(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("qemu-img", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// checkWithQEMU runs qemu-img check on an image, which includes leaks, and compares it with want. Without
// qemu-img it only logs a message.
func checkWithQEMU(t *testing.T, path string, want disk.Source) {
	t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Log("no qemu-img in PATH to check the image")
		return
	}
	qemuImg(t, "check", "-q", "-f", "qcow2", path)
	qemuImg(t, "compare", "-q", "-f", "qcow2", "-F", "raw", path, writeRaw(t, want))
}

// writeRaw writes src to a sparse raw file.
func writeRaw(t testing.TB, src disk.Source) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "want.raw")
	f, err := rawfile.Create(path, src.Size(), rawfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	copyDisk(t, f, src)
	if err := f.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	return path
}

// copyDisk writes src to dst in pieces of up to 1 MiB. It calls Zero for holes.
func copyDisk(t testing.TB, dst disk.Target, src disk.Source) {
	t.Helper()
	extents, err := src.Extents(t.Context(), disk.Range{Len: src.Size()})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range extents {
		if e.Kind == disk.Zero {
			err = dst.Zero(t.Context(), e.Range)
		} else {
			err = copyRange(t, dst, src, e.Range)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func copyRange(t testing.TB, dst disk.Target, src disk.Source, r disk.Range) error {
	p := make([]byte, 1<<20)
	for off := r.Off; off < r.End(); off += int64(len(p)) {
		p = p[:min(int64(len(p)), r.End()-off)]
		if err := src.ReadAt(t.Context(), p, off); err != nil {
			return err
		}
		if err := dst.WriteAt(t.Context(), p, off); err != nil {
			return err
		}
	}
	return nil
}
