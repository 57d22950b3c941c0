package qcow2

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// TestFinishWritesHeaderLast cancels Finish before it writes the header. The file then still has the note.
func TestFinishWritesHeaderLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	im, err := Create(path, 8<<20, Options{})
	if err != nil {
		t.Fatal(err)
	}
	copyDisk(t, im, disk.NewSparsePattern(8<<20, 0.5, 1))
	if err := im.writeTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := im.Finish(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Finish: got %v, want %v", err, context.Canceled)
	}
	if err := im.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSource(path, SourceOptions{}); !fault.Is(err, fault.Corrupt) {
		t.Errorf("OpenSource: got %v, want a corrupt error", err)
	}
	again, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkWithQEMU(t, path, disk.NewSparsePattern(8<<20, 0.5, 1))
}

func TestZeroFreesClustersOnResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	mustWriteImage(t, path, disk.NewPattern(8<<20))
	im, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := im.Zero(t.Context(), disk.Range{Off: 100, Len: 8<<20 - 100}); err != nil {
		t.Fatal(err)
	}
	if err := im.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	src, err := OpenSource(path, SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	extents, err := src.Extents(t.Context(), disk.Range{Len: 8 << 20})
	if err != nil || len(extents) != 2 || extents[0].Len > clusterSize || extents[1].Kind != disk.Zero {
		t.Errorf("extents %v, %v", extents, err)
	}
}

func TestResumeRefusals(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "disk.qcow2")
	mustWriteImage(t, path, disk.NewPattern(4<<20))
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, bytes.Repeat([]byte("x"), 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(p string, size int64) error { _, err := Open(p, Options{Size: size}); return err }
	create := func(p string, size int64) error { _, err := Create(p, size, Options{}); return err }
	for name, c := range map[string]struct {
		err  error
		want fault.Kind
	}{
		"another size":       {open(path, 5<<20), fault.Conflict},
		"same file size":     {open(path, 4<<20-512), fault.Conflict},
		"no qcow2":           {open(other, 0), fault.Conflict},
		"no qcow2, size":     {open(other, 4<<20), fault.Conflict},
		"no file":            {open(filepath.Join(dir, "none"), 0), fault.NotFound},
		"create over a file": {create(path, 4<<20), fault.Conflict},
		"size 0":             {create(filepath.Join(dir, "zero"), 0), fault.Unsupported},
		"8 PiB":              {create(filepath.Join(dir, "huge"), 8<<50), fault.Unsupported},
	} {
		if !fault.Is(c.err, c.want) || fault.HintOf(c.err) == "" {
			t.Errorf("%s: got %v (%v), want kind %v", name, c.err, fault.KindOf(c.err), c.want)
		}
	}
	readBack(t, path, disk.NewPattern(4<<20)) // the refused calls changed nothing
}

func TestOneWriterAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	im, err := Create(path, 1<<20, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	if _, err := Open(path, Options{}); !fault.Is(err, fault.Conflict) {
		t.Errorf("second writer: got %v, want a conflict", err)
	}
}

func TestOpenCompletesAKilledCreate(t *testing.T) {
	l, err := newLayout(3 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{0, l.data.End()} {
		path := filepath.Join(t.TempDir(), "disk.qcow2")
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)); err != nil {
			t.Fatal(err)
		}
		im, err := Open(path, Options{Size: 3 << 20})
		if err != nil {
			t.Fatal(err)
		}
		copyDisk(t, im, disk.NewPattern(3<<20))
		if err := im.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkWithQEMU(t, path, disk.NewPattern(3<<20))
	}
}

// An image resumes after qemu wrote to allocated clusters. It does not resume after qemu allocated a cluster,
// because its offset does not match the layout.
func TestResumeAfterQEMU(t *testing.T) {
	skipWithout(t, "qemu-io")
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	im, err := Create(path, 8<<20, Options{})
	if err == nil {
		err = im.WriteAt(t.Context(), []byte("data"), 0)
	}
	if err := errors.Join(err, im.Finish(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command string
		resumes bool
	}{
		{"write -P 7 0 64k", true},
		{"write -P 7 4M 64k", false},
	} {
		if out, err := exec.Command("qemu-io", "-f", "qcow2", "-c", c.command, path).CombinedOutput(); err != nil {
			t.Fatalf("qemu-io: %v\n%s", err, out)
		}
		im, err := Open(path, Options{})
		if (err == nil) != c.resumes {
			t.Errorf("after %q: %v", c.command, err)
		}
		if err != nil {
			continue
		}
		if err := im.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
