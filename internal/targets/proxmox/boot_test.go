package proxmox

import (
	"bufio"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/pve"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/test/boot"
	tinyguest "github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/lane"
)

// A delivered guest boots from its stored disks and detects its hardware.
func TestDeliveredGuestsBoot(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		vm       *inventory.VM
		guest    tinyguest.Name
		hardware targets.Hardware
		storage  string
		disk     string
		card     string
		firmware string
		slow     bool
	}{
		{"bios", tinyVM(inventory.PVSCSI, inventory.BIOS), tinyguest.NoVirtio, targets.Compat, "local-lvm", "vmw_pvscsi", "vmxnet3", "bios", false},
		{"ide", tinyVM(inventory.IDE, inventory.BIOS), tinyguest.NoVirtio, targets.Compat, "local", "ata_piix", "vmxnet3", "bios", true},
		{"efi", tinyVM(inventory.LSISAS, inventory.EFI), tinyguest.UEFI, targets.Compat, "local-lvm", "virtio_scsi", "vmxnet3", "efi", true}, // TestDirectGuestBootsByItsEntry has EFI
		{"virtio", tinyVM(inventory.PVSCSI, inventory.BIOS), tinyguest.BIOS, targets.Virtio, "local", "virtio_scsi", "virtio_net", "bios", true},
	}
	for _, tt := range tests {
		if tt.slow && !lane.Slow {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			image := tinyguest.Image(t, tt.guest)
			s := startServer(t, pve.Config{})
			p := newPlatform(t, s, Options{Storage: tt.storage})
			d := platform.Delivery{Definition: targets.Definition{VM: tt.vm, Hardware: tt.hardware, Images: []targets.Image{
				{Key: 2000, Path: image, Format: targets.Raw, Size: tinyguest.Size, Root: "aa55"},
			}}}
			receipt, err := p.Deliver(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			m := bootGuest(t, s, p, d.Definition, receipt.ID)
			card := boot.Card{Name: "eth0", MAC: tt.vm.NICs[0].MAC, Driver: tt.card}
			if m.Driver != tt.disk || m.UUID != tt.vm.UUID || m.Firmware != tt.firmware || len(m.Cards) != 1 || m.Cards[0] != card {
				t.Errorf("the guest sees %+v", m)
			}
		})
	}
}

func tinyVM(on inventory.Bus, firmware inventory.Firmware) *inventory.VM {
	return changedVM(biosVM(), func(vm *inventory.VM) {
		vm.Disks, vm.CPUs, vm.CoresPerSocket, vm.CDROMs = vm.Disks[:1], 1, 1, 0 // each additional processor is emulated as well
		vm.Disks[0].Capacity, vm.Controllers[0].Bus, vm.Firmware = tinyguest.Size, on, firmware
	})
}

// bootGuest starts the guest of def and returns the marker that it prints on its serial port. A guest without a
// marker shuts down, so only one that hangs reaches the deadline.
func bootGuest(t *testing.T, s *pve.Server, p *Platform, def targets.Definition, id string) boot.Marker {
	t.Helper()
	vmid, err := strconv.Atoi(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Start(t.Context(), def); err != nil {
		t.Fatalf("%v (%s)", err, fault.HintOf(err))
	}
	for deadline, on := time.Now().Add(30*time.Minute), true; on && time.Now().Before(deadline); {
		on = isRunning(t, p, vmid) // read before the serial port: a guest that is off prints nothing more
		if m, ok := findMarker(t, s.Serial(vmid)); ok {
			return m
		}
		if err := sleep.For(t.Context(), 200*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	output, _ := os.ReadFile(s.Serial(vmid))
	t.Fatalf("no marker; options %v; output %q", s.Guest(vmid), output)
	return boot.Marker{}
}

// findMarker returns the marker in the output so far.
func findMarker(t *testing.T, path string) (boot.Marker, bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		return boot.Marker{}, false // QEMU has not created it yet
	}
	defer f.Close()
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return boot.Marker{}, false
		}
		m, ok, err := boot.ParseMarker(line)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			return m, true
		}
	}
}
