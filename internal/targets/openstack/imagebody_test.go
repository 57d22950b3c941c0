package openstack

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// Glance and Nova inspect the first bytes of a raw image, which the guest controls.
func TestDiskWithImageSignatureIsNotSentAsRaw(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(path, append([]byte("QFI\xfb\x00\x00\x00\x03"), make([]byte, 1<<20-8)...), 0o600); err != nil {
		t.Fatal(err)
	}
	d := platform.Delivery{Open: func(context.Context, targets.Image) (disk.Source, error) {
		return rawfile.OpenSource(path, rawfile.SourceOptions{})
	}}
	if _, err := openBody(t.Context(), d, targets.Image{}, "raw", func(int64) {}); !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
		t.Errorf("as raw: %v (%s)", err, fault.HintOf(err))
	}
	b, err := openBody(t.Context(), d, targets.Image{}, "", func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if n, err := io.Copy(io.Discard, b); err != nil || n == 0 || b.format != "qcow2" {
		t.Errorf("as %s: %d bytes, %v", b.format, n, err)
	}
}
