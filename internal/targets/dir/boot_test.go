package dir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/test/boot"
	tinyguest "github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/lane"
)

// A published VM boots, and its guest detects the expected hardware.
func TestPublishedVMsBoot(t *testing.T) {
	requireTools(t, "qemu-system-x86_64")
	oneCPU := changedVM(efiVM(), func(vm *inventory.VM) { vm.CPUs, vm.CoresPerSocket = 1, 1 }) // each additional CPU is emulated as well
	tests := []struct {
		name     string
		vm       *inventory.VM
		guest    tinyguest.Name
		format   targets.Format
		driver   string
		firmware string
		slow     bool
	}{
		{"bios", biosVM(), tinyguest.NoVirtio, targets.Raw, "vmw_pvscsi", "bios", true}, // make demo boots it as well
		{"ide", vmOnBus(inventory.IDE), tinyguest.NoVirtio, targets.QCOW2, "ata_piix", "bios", true},
		{"efi", efiVM(), tinyguest.UEFI, targets.QCOW2, "virtio_scsi", "efi", true},
		{"efi by its boot entry", oneCPU, tinyguest.Entry, targets.Raw, "virtio_scsi", "efi", false}, // without a fallback loader
	}
	for _, tt := range tests {
		if tt.slow && !lane.Slow {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newTarget(t, Options{Format: tt.format})
			folder := publishGuest(t, d, tt.vm, tinyguest.Image(t, tt.guest))
			m, err := boot.Domain(t.Context(), filepath.Join(folder, "domain.xml"), boot.Options{})
			if err != nil {
				t.Fatal(err)
			}
			nic := boot.Card{Name: "eth0", MAC: tt.vm.NICs[0].MAC, Driver: "vmxnet3"}
			if m.Driver != tt.driver || m.UUID != tt.vm.UUID || m.Firmware != tt.firmware || len(m.Cards) != 1 || m.Cards[0] != nic {
				t.Errorf("the guest sees %+v", m)
			}
		})
	}
}

// publishGuest publishes vm with a test guest's image and returns its folder.
func publishGuest(t *testing.T, d *Target, vm *inventory.VM, image string) string {
	t.Helper()
	images, err := d.Plan(t.Context(), vm)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	images[0].Root = "aa55"
	writeImage(t, d, images[0], data)
	if err := d.Publish(t.Context(), targets.Definition{VM: vm, Images: images, Decamp: "v0.0.0-test", EFI: detectEFIState(t, d, images)}); err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(images[0].Final)
}

// detectEFIState returns the boot entries that the images provide.
func detectEFIState(t *testing.T, d *Target, images []targets.Image) *efi.State {
	t.Helper()
	reports, err := guest.DetectEach(t.Context(), len(images), func(i int) (disk.Source, error) { return d.Read(t.Context(), images[i]) })
	if err != nil {
		t.Fatal(err)
	}
	state := guest.EFIState(reports, efi.State{})
	return &state
}
