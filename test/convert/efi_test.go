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

// A guest whose EFI boot entry stayed behind is started by a firmware that knows nothing of it,
// once it is converted. Not converted it ends in the firmware.
func TestGuestBootsWithoutItsBootEntry(t *testing.T) {
	t.Parallel()
	plain := tinyguest.Image(t, tinyguest.Vendor)
	t.Run("converted", func(t *testing.T) {
		t.Parallel()
		image := copied(t, plain)
		result := converted(t, image, convert.Options{EFI: true})
		const loader = "boot/efi/EFI/BOOT/BOOTX64.EFI"
		if !slices.Contains(changed(result), loader) {
			t.Errorf("changed %q, without %s", changed(result), loader)
		}
		checkESP(t, image)
		m, err := boot.Domain(t.Context(), efiDomain(t, image), boot.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m.Firmware != "efi" || m.Driver != "virtio_scsi" {
			t.Errorf("marker %+v", m)
		}
		if again := converted(t, image, convert.Options{EFI: true}); len(again.Changes) != 0 {
			t.Errorf("the second run changed %v", again.Changes)
		}
	})
	if !lane.Slow {
		return // TestBootEntryOfTheDomain of testboot ends in the shell, too
	}
	t.Run("loader not added", func(t *testing.T) {
		t.Parallel()
		image := copied(t, plain)
		converted(t, image, convert.Options{})
		xml, err := os.ReadFile(efiDomain(t, image))
		if err != nil {
			t.Fatal(err)
		}
		r, err := testboot.Boot(t.Context(), string(xml), testboot.Options{Accel: testboot.TCG, Expect: "DECAMP-MARKER boot=ok"})
		if err != nil || r.Verdict != testboot.UEFIShell || !strings.Contains(r.Remedy, "its EFI boot entry was not migrated") {
			t.Errorf("%+v, %v; want %s", r, err, testboot.UEFIShell)
		}
	})
}

// checkESP has dosfstools look at the system partition of a test guest.
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

// efiDomain is domain with EFI.
func efiDomain(t *testing.T, image string) string {
	t.Helper()
	path := domain(t, image)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "<os>", "<os firmware='efi'>", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
