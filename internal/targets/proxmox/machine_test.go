package proxmox

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// testOptions returns options with the defaults that New sets.
func testOptions() Options {
	return Options{
		Storage: "local-lvm", Bridge: "vmbr0", CPU: "x86-64-v2-AES",
		Maps: namemap.Map{Networks: map[string]namemap.Network{"dmz": {To: "vmbr1,20"}, "R&D": {To: "vmbr2"}}},
	}
}

// windowsVM has UEFI with Secure Boot and a TPM. It boots from LSI SAS and has data disks on other controllers.
func windowsVM() *inventory.VM {
	return changedVM(biosVM(), func(vm *inventory.VM) {
		vm.Name, vm.GuestID = `Straße_7 "prod".example.com`, "windows2019srvNext_64Guest"
		vm.Firmware, vm.SecureBoot, vm.VTPM = inventory.EFI, true, true
		vm.CPUs, vm.CoresPerSocket, vm.MemoryMiB = 3, 2, 8192
		vm.Controllers = []inventory.Controller{
			{Key: 200, Bus: inventory.IDE}, {Key: 1000, Bus: inventory.LSISAS}, {Key: 1001, Bus: inventory.LSILogic, Number: 1},
			{Key: 15000, Bus: inventory.AHCI}, {Key: 31000, Bus: inventory.NVMe}, {Key: 1002, Bus: inventory.PVSCSI, Number: 2},
		}
		vm.Disks = nil
		for i, controller := range []int32{1000, 200, 1001, 15000, 31000, 1002} {
			vm.Disks = append(vm.Disks, inventory.Disk{Key: int32(2000 + i), Controller: controller, UUID: fmt.Sprintf("6000C29a-%04d", i)})
		}
		vm.NICs = append(vm.NICs,
			inventory.NIC{Key: 4001, Model: "e1000e", MAC: "00:50:56:ab:cd:02", Network: "dmz", StartConnected: true},
			inventory.NIC{Key: 4002, Model: "vmxnet2", MAC: "00:50:56:ab:cd:03", Network: "R&D"})
		vm.BootOrder = []string{"cdrom", "floppy", "disk:2000", "net:4001"}
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	linux := []guest.Report{{OS: guest.OS{ID: "debian"}}}
	mixed := changedVM(biosVM(), func(vm *inventory.VM) {
		vm.Controllers = append(vm.Controllers, inventory.Controller{Key: 1001, Bus: inventory.LSILogic, Number: 1})
		vm.Disks[1].Controller = 1001
		vm.BootOrder = []string{"net:4000", "disk:2001"}
		vm.CDROMs = 5
	})
	tests := []struct {
		name string
		def  targets.Definition
	}{
		{"bios", targets.Definition{VM: biosVM()}},
		{"virtio", targets.Definition{VM: windowsVM(), Hardware: targets.Virtio}},
		{"virtio-blk", targets.Definition{VM: windowsVM(), Hardware: targets.VirtioBlk}},
		{"windows", targets.Definition{VM: windowsVM()}},
		{"linux-efi", targets.Definition{VM: windowsVM(), Guest: linux}},
		{"agent", targets.Definition{VM: windowsVM(), Hardware: targets.Virtio, Guest: linux, Converted: &convert.Result{GuestAgent: true}}},
		{"mixed", targets.Definition{VM: mixed}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, d := range tt.def.VM.Disks {
				tt.def.Images = append(tt.def.Images, targets.Image{Key: d.Key, Format: targets.Raw})
			}
			m, err := Config(tt.def, testOptions())
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, filepath.Join("testdata", tt.name+".txt"), formatMachine(m, tt.def))
		})
	}
}

// formatMachine formats a machine for comparison with a golden file.
func formatMachine(m Machine, def targets.Definition) string {
	var s strings.Builder
	for _, p := range m.Base {
		fmt.Fprintf(&s, "%s=%s\n", p.Key, p.Value)
	}
	for _, d := range m.Disks {
		fmt.Fprintf(&s, "disk %d: %s=VOLUME%s\n", def.Images[d.Image].Key, d.Slot, d.Words)
	}
	fmt.Fprintf(&s, "boot=%s\n", m.Boot)
	for _, w := range m.Warnings {
		fmt.Fprintf(&s, "%s: %s\n\t%s\n", w.Code, w.Text, w.Remedy)
	}
	return s.String()
}

func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("golden file %s: got\n%s\nwant\n%s", path, got, want)
	}
}

func TestConfigRefusesUnsupportedHardware(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*inventory.VM){
		"BusLogic":      func(vm *inventory.VM) { vm.Controllers[0].Bus = inventory.BusLogic },
		"no controller": func(vm *inventory.VM) { vm.Disks[1].Controller = 7 },
		"seven on SATA": func(vm *inventory.VM) {
			vm.Controllers[0].Bus = inventory.AHCI
			for len(vm.Disks) < 7 {
				vm.Disks = append(vm.Disks, inventory.Disk{Key: int32(2000 + len(vm.Disks)), Controller: 1000})
			}
		},
		"33 cards": func(vm *inventory.VM) {
			for len(vm.NICs) < 33 {
				vm.NICs = append(vm.NICs, vm.NICs[0])
			}
		},
	}
	for name, change := range tests {
		_, err := Config(targets.Definition{VM: changedVM(biosVM(), change)}, testOptions())
		if !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v (hint %q), want unsupported", name, err, fault.HintOf(err))
		}
	}
}

func TestGuestNamesAreDNSNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"web01": "web01", "web 01": "web-01", "a.b.example.com": "a-b-example-com", "Straße 7": "Stra-e-7", "-x-": "x",
		"": "vm", "日本": "vm", "a/../b;rm": "a-b-rm", strings.Repeat("x", 62) + "-y": strings.Repeat("x", 62),
	} {
		if got := guestName(name); got != want {
			t.Errorf("guestName(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestOstypes(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"debian12_64Guest": "l26", "": "l26", "windows9Server64Guest": "win10", "windows2019srv_64Guest": "win10",
		"windows2019srvNext_64Guest": "win11", "winLonghorn64Guest": "w2k8", "windows7Server64Guest": "win7", "other24xLinux64Guest": "l24",
		"freebsd13_64Guest": "other", "winNetStandardGuest": "w2k3",
	} {
		if got := osTypeByID(id); got != want {
			t.Errorf("osTypeByID(%q) = %s, want %s", id, got, want)
		}
	}
}
