package verify

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/manifest"
)

// publishImage writes a raw image with its manifest, like decamp convert, and returns its path.
func publishImage(t *testing.T) string {
	t.Helper()
	const size = 4 << 20
	path := filepath.Join(t.TempDir(), "x.raw")
	d := image.Draft{Final: image.File{Path: path, Format: image.Raw, Size: size}}
	if err := d.Prepare(); err != nil {
		t.Fatal(err)
	}
	job := image.Job{Opener: d.File(), Path: d.File().Path, Manifest: d.Manifest(), Info: manifest.Info{Disk: "x.raw", Size: size}}
	_, _, err := job.Fill(t.Context(), func(ctx context.Context, into *image.Copying) error {
		_, err := blockcopy.Copy(ctx, disk.NewPattern(size), into.Target, blockcopy.Options{Manifest: into.Log})
		return err
	})
	if err := errors.Join(err, d.Publish()); err != nil {
		t.Fatal(err)
	}
	return path
}

// File reports a changed bit as corruption, but not if the image was written to after its manifest.
func TestFileDistinguishesCorruptionFromWrites(t *testing.T) {
	path := publishImage(t)
	found, err := File(t.Context(), path, manifest.VerifyOptions{})
	if err != nil || found.File != "x.raw" || found.Chunks != 4 || found.BadChunks != 0 || found.Changed != "" {
		t.Errorf("new image: got %+v, %v", found, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{0xEE}, 512), 1<<20)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		written time.Time
		kind    fault.Kind
	}{
		{"later modification time", info.ModTime().Add(time.Hour), fault.Changed},
		{"original modification time", info.ModTime(), fault.Corrupt},
	} {
		if err := os.Chtimes(path, c.written, c.written); err != nil {
			t.Fatal(err)
		}
		found, err := File(t.Context(), path, manifest.VerifyOptions{})
		if !fault.Is(err, c.kind) || fault.HintOf(err) == "" || found.BadChunks != 1 || (found.Changed != "") != (c.kind == fault.Changed) {
			t.Errorf("%s: got %+v, %v, want kind %v", c.name, found, err, c.kind)
		}
	}
}

func TestTruncatedFile(t *testing.T) {
	path := publishImage(t)
	if err := os.Truncate(path, 4<<20-512); err != nil {
		t.Fatal(err)
	}
	if _, err := File(t.Context(), path, manifest.VerifyOptions{}); !fault.Is(err, fault.Corrupt) {
		t.Errorf("truncated image: got %v, want corrupt", err)
	}
}
