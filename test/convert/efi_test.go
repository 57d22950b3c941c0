package convert

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/test/boot"
	tinyguest "github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/lane"
)

// A guest without its EFI boot entry boots after its conversion, because the conversion adds the fallback loader. Without
// the loader it ends in the UEFI shell.
func TestGuestBootsWithoutItsBootEntry(t *testing.T) {
	t.Parallel()
	plain := tinyguest.Image(t, tinyguest.Vendor)
	t.Run("converted", func(t *testing.T) {
		t.Parallel()
		image := copyImage(t, plain)
		result := convertImage(t, image, convert.Options{EFI: true})
		const loader = "boot/efi/EFI/BOOT/BOOTX64.EFI"
		if !slices.Contains(changedPaths(result), loader) {
			t.Errorf("changed %q, want %s among them", changedPaths(result), loader)
		}
		checkESP(t, image)
		m, err := boot.Domain(t.Context(), writeEFIDomain(t, image), boot.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m.Firmware != "efi" || m.Driver != "virtio_scsi" {
			t.Errorf("marker %+v", m)
		}
		if again := convertImage(t, image, convert.Options{EFI: true}); len(again.Changes) != 0 {
			t.Errorf("the second run changed %v", again.Changes)
		}
	})
	if !lane.Slow {
		return // TestBootEntryOfTheDomain of package testboot also ends in the shell
	}
	t.Run("loader not added", func(t *testing.T) {
		t.Parallel()
		image := copyImage(t, plain)
		convertImage(t, image, convert.Options{})
		xml, err := os.ReadFile(writeEFIDomain(t, image))
		if err != nil {
			t.Fatal(err)
		}
		r, err := testboot.Boot(t.Context(), string(xml), testboot.Options{Accel: testboot.TCG, Expect: "DECAMP-MARKER boot=ok"})
		if err != nil || r.Verdict != testboot.UEFIShell || !strings.Contains(r.Remedy, "its EFI boot entry was not migrated") {
			t.Errorf("%+v, %v; want %s", r, err, testboot.UEFIShell)
		}
	})
}

// checkESP checks the EFI system partition of a test guest with fsck.fat.
func checkESP(t *testing.T, image string) {
	t.Helper()
	data, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(t.TempDir(), "esp")
	if err := os.WriteFile(part, data[1<<20:17<<20], 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "/usr/sbin/fsck.fat", "-n", part).CombinedOutput(); err != nil {
		t.Errorf("fsck.fat -n: %v: %s", err, out)
	}
}

// writeEFIDomain is like writeDomain, with EFI firmware.
func writeEFIDomain(t *testing.T, image string) string {
	t.Helper()
	path := writeDomain(t, image)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "<os>", "<os firmware='efi'>", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
