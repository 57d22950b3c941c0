// Package convert tests conversions of guests. Its tests boot the converted guests.
package convert

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/overlay"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/test/boot"
	tinyguest "github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/lane"
)

// A guest of VMware without virtio drivers in its initramfs boots from virtio-scsi with virtio-net after its conversion.
// Without the conversion it does not boot and prints the reason.
func TestLinuxAppendMakesAGuestBootFromVirtio(t *testing.T) {
	t.Parallel()
	plain := tinyguest.Image(t, tinyguest.NoVirtio)
	t.Run("converted", func(t *testing.T) {
		t.Parallel()
		image := copyImage(t, plain)
		began := time.Now()
		result := convertImage(t, image, convert.Options{})
		t.Logf("linux-append: %v, %d changes", time.Since(began), len(result.Changes))
		m, err := boot.Domain(t.Context(), writeDomain(t, image), boot.Options{})
		if err != nil {
			t.Fatal(err)
		}
		card := boot.Card{Name: "eth0", MAC: "00:50:56:ab:cd:01", Driver: "virtio_net"}
		if m.Disk != "sda" || m.Driver != "virtio_scsi" || len(m.Cards) != 1 || m.Cards[0] != card {
			t.Errorf("marker %+v", m)
		}
		if again := convertImage(t, image, convert.Options{}); len(again.Changes) != 0 {
			t.Errorf("the second run changed %v", again.Changes)
		}
	})
	if !lane.Slow {
		return // test/cli has TestUnconvertedGuestStopsInInitramfs
	}
	t.Run("not converted", func(t *testing.T) {
		t.Parallel()
		_, err := boot.Domain(t.Context(), writeDomain(t, plain), boot.Options{})
		if err == nil || !strings.Contains(err.Error(), "no root device /dev/sda1") {
			t.Errorf("got %v, want the error of the guest", err)
		}
	})
}

// convertImage runs linux-append on an overlay and applies the overlay to the image.
func convertImage(t *testing.T, image string, options convert.Options) convert.Result {
	t.Helper()
	ctx := t.Context()
	src, err := rawfile.OpenSource(image, rawfile.SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o := overlay.New(src, 256<<20)
	defer o.Close()
	report, err := guest.Detect(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	result, err := convert.LinuxAppend(ctx, []convert.Disk{{Overlay: o, Report: report}}, options)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(image, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := o.ApplyTo(ctx, fileWriter{file}); err != nil {
		t.Fatal(err)
	}
	return result
}

// fileWriter writes an overlay to a file.
type fileWriter struct{ *os.File }

func (f fileWriter) WriteAt(_ context.Context, p []byte, off int64) error {
	_, err := f.File.WriteAt(p, off)
	return err
}

// copyImage returns the path of a writable copy of an image.
func copyImage(t *testing.T, image string) string {
	t.Helper()
	data, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image.raw")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeDomain writes the definition of a VM with virtio hardware and that image, and returns its path.
func writeDomain(t *testing.T, image string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/virtio.xml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "domain.xml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "@IMAGE@", image)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
