package dir

import (
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// biosVM is a simple VM with one pvscsi disk and one vmxnet3 card.
func biosVM() *inventory.VM {
	return &inventory.VM{
		Ref: "7", Name: "web 01", UUID: "564d1234-0000-1111-2222-333344445555",
		InstanceUUID: "52aa0000-1111-2222-3333-444455556666", HostName: "esx1",
		VMX:     inventory.Path{Datastore: "ds1", File: "web 01/web 01.vmx"},
		GuestID: "debian12_64Guest", HardwareVersion: 19,
		CPUs: 4, CoresPerSocket: 2, MemoryMiB: 256, Firmware: inventory.BIOS,
		Controllers: []inventory.Controller{{Key: 1000, Bus: inventory.PVSCSI}},
		Disks:       []inventory.Disk{{Key: 2000, Controller: 1000, Capacity: 64 << 20, UUID: "6000C29a-4cbb-f2e9-5b95-000000000001"}},
		NICs: []inventory.NIC{{
			Key: 4000, Model: "vmxnet3", MAC: "00:50:56:ab:cd:01", Network: "VM Network", Connected: true, StartConnected: true,
		}},
		CDROMs: 1,
	}
}

// changedVM applies change to vm and returns it.
func changedVM(vm *inventory.VM, change func(*inventory.VM)) *inventory.VM {
	change(vm)
	return vm
}

// vmOnBus is biosVM with its disk on another kind of controller.
func vmOnBus(bus inventory.Bus) *inventory.VM {
	return changedVM(biosVM(), func(vm *inventory.VM) { vm.Controllers[0].Bus = bus })
}

func efiVM() *inventory.VM {
	return changedVM(biosVM(), func(vm *inventory.VM) { vm.Name, vm.Firmware = "efi", inventory.EFI })
}

// bigVM has a value in every supported field.
func bigVM() *inventory.VM {
	vm := biosVM()
	vm.Name, vm.GuestID = `näme/with "all" <of> & it`, "windows2019srv_64Guest"
	vm.Annotation = "bill to: <R&D>"
	vm.Tags = []inventory.Tag{{Category: "app", Name: "db"}, {Category: "app", Name: "web & <more>"}, {Category: "Env", Name: "Prod"}}
	vm.Attributes = map[string]string{"Owner": "R&D", "Cost centre": "4711\nsecond line"}
	vm.CPUs, vm.CoresPerSocket = 3, 2
	vm.Controllers = []inventory.Controller{
		{Key: 200, Bus: inventory.IDE}, {Key: 1000, Bus: inventory.LSISAS}, {Key: 1001, Bus: inventory.LSILogic, Number: 1},
		{Key: 15000, Bus: inventory.AHCI}, {Key: 31000, Bus: inventory.NVMe}, {Key: 1002, Bus: inventory.PVSCSI, Number: 2},
	}
	vm.Disks = nil
	for unit := range 10 {
		vm.Disks = append(vm.Disks, inventory.Disk{Key: int32(2000 + unit), Controller: 1000, Unit: unit})
	}
	for i, controller := range []int32{200, 1001, 15000, 31000, 1002} {
		vm.Disks = append(vm.Disks, inventory.Disk{Key: int32(3000 + i), Controller: controller})
	}
	vm.NICs = append(vm.NICs,
		inventory.NIC{Key: 4001, Model: "e1000", MAC: "00:50:56:ab:cd:02", Network: "R&D <dmz>"},
		inventory.NIC{Key: 4002, Model: "vmxnet2", MAC: "00:50:56:ab:cd:03", StartConnected: true})
	vm.BootOrder = []string{"cdrom", "floppy", "disk:3004", "net:4001"}
	return vm
}

// newDefinition returns a definition of vm with the images that Plan would name.
func newDefinition(vm *inventory.VM, reports ...guest.Report) targets.Definition {
	name := SafeName(vm.Name)
	def := targets.Definition{VM: vm, Guest: reports, Decamp: "v0.0.0-test"}
	for i, d := range vm.Disks {
		file := "/srv/vm/" + name + "/" + name + "-disk" + string(rune('0'+i%10)) + ".raw"
		def.Images = append(def.Images, targets.Image{Key: d.Key, Final: file, Format: targets.Raw, Size: d.Capacity})
	}
	return def
}
