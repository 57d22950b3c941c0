package program

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/lab"
)

// SameDisk compares an image, raw or qcow2, with a disk of the emulator, byte by byte. qemu-img
// converts qcow2 images, so that decamp's reader is not involved.
func SameDisk(t *testing.T, image string, want lab.DiskContent) {
	t.Helper()
	if filepath.Ext(image) == ".qcow2" {
		Requires(t, "qemu-img")
		raw := filepath.Join(t.TempDir(), "raw")
		out, err := exec.CommandContext(t.Context(), "qemu-img", "convert", "-O", "raw", image, raw).CombinedOutput()
		if err != nil {
			t.Fatalf("qemu-img convert: %v: %s", err, out)
		}
		defer os.Remove(raw)
		image = raw // compared below
	}
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if st.Size() != want.Size {
		t.Fatalf("%s has %d bytes, the disk %d", image, st.Size(), want.Size)
	}
	if at := FirstDifference(t, f, want.ReaderAt, want.Size); at >= 0 {
		t.Fatalf("%s differs from the source within the MiB at %d", image, at)
	}
}

// FirstDifference returns the offset of the first MiB in which a and b differ, or -1.
func FirstDifference(t *testing.T, a, b io.ReaderAt, size int64) int64 {
	t.Helper()
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	for off := int64(0); off < size; off += 1 << 20 {
		n := min(1<<20, size-off)
		if _, err := a.ReadAt(x[:n], off); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if _, err := b.ReadAt(y[:n], off); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if !bytes.Equal(x[:n], y[:n]) {
			return off
		}
	}
	return -1
}
