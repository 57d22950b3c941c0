package testboot_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/test/guest"
)

// shimAndGRUB maps names on an EFI system partition to the signed boot loaders of Debian.
var shimAndGRUB = map[string]string{
	"BOOTX64.EFI": "/usr/lib/shim/shimx64.efi.signed",
	"grubx64.efi": "/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed",
}

// With Secure Boot a signed boot loader runs. An unsigned one, which boots without Secure Boot, does not run.
func TestSecureBoot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		image string
		want  testboot.Verdict
	}{
		"signed":   {systemPartition(t, shimAndGRUB), testboot.BootLoader}, // GRUB has no configuration and shows its prompt
		"unsigned": {guest.Image(t, guest.UEFI), testboot.Unsigned},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			xml := strings.NewReplacer("<os firmware='efi'>", "<os firmware='efi'><firmware>"+
				"<feature enabled='yes' name='secure-boot'/><feature enabled='yes' name='enrolled-keys'/></firmware>",
				"<apic/>", "<apic/><smm state='on'/>").Replace(domainXML("efi", "virtio-scsi", "virtio", c.image))
			r := bootEmulated(t, xml, testboot.Options{Expect: marker, Settle: 2 * time.Second})
			if r.Verdict != c.want {
				t.Errorf("%+v, want %s", r, c.want)
			}
		})
	}
}

// systemPartition creates a FAT image without a partition table, with the files in EFI/BOOT.
func systemPartition(t *testing.T, files map[string]string) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "esp.raw")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	run("mkfs.fat", "-C", image, "16384")
	run("mmd", "-i", image, "::/EFI", "::/EFI/BOOT")
	for name, file := range files {
		run("mcopy", "-i", image, file, "::/EFI/BOOT/"+name)
	}
	return image
}
