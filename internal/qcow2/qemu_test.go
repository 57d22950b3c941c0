package qcow2

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
)

// requires skips a test on a machine that lacks something: "root" or a program.
func requires(t testing.TB, what string) {
	t.Helper()
	if what == "root" {
		if os.Geteuid() != 0 {
			t.Skip("needs root, to mount file systems")
		}
		return
	}
	if _, err := exec.LookPath(what); err != nil {
		t.Skipf("needs %s in PATH", what)
	}
}

// qemuImg runs qemu-img, which must succeed, and returns what it said.
func qemuImg(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("qemu-img", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// judge has qemu-img check an image, leaks included, and compare it with want. Without
// qemu-img there is no judge, and the test goes on without a verdict.
func judge(t *testing.T, path string, want disk.Source) {
	t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Log("no qemu-img in PATH to judge the image")
		return
	}
	qemuImg(t, "check", "-q", "-f", "qcow2", path)
	qemuImg(t, "compare", "-q", "-f", "qcow2", "-F", "raw", path, writeRaw(t, want))
}

// writeRaw writes src to a raw file, holes left out.
func writeRaw(t testing.TB, src disk.Source) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "want.raw")
	f, err := rawfile.Create(path, src.Size(), rawfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, f, src)
	if err := f.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	return path
}

// put writes src to dst in pieces of up to 1 MiB, holes as Zero.
func put(t testing.TB, dst disk.Target, src disk.Source) {
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
