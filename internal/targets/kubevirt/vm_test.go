package kubevirt

import (
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
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

// bigVM has a value in every supported field.
func bigVM() *inventory.VM {
	vm := biosVM()
	vm.Name, vm.GuestID = `Näme/with "all" <of> & it: 日本`, "windows2019srv_64Guest"
	vm.Annotation = "bill to: <R&D>\nyes: \"no\"\xff"
	vm.Tags = []inventory.Tag{{Category: "App", Name: "db"}, {Category: "App", Name: "web & <more>"}, {Category: "Env", Name: "Prod"}, {Category: "日本", Name: "on"}}
	vm.Attributes = map[string]string{"Owner": "R&D \xff", "Cost centre": "4711\nsecond line"}
	vm.CPUs, vm.CoresPerSocket, vm.MemoryMiB = 3, 2, 4096
	vm.Firmware, vm.SecureBoot, vm.VTPM = inventory.EFI, true, true
	vm.Controllers = []inventory.Controller{
		{Key: 15000, Bus: inventory.AHCI}, {Key: 31000, Bus: inventory.NVMe}, {Key: 1000, Bus: inventory.LSISAS}, {Key: 1001, Unexpected: "BusLogic"},
	}
	vm.Disks = nil
	for i, controller := range []int32{1000, 1000, 1001, 31000, 15000} {
		vm.Disks = append(vm.Disks, inventory.Disk{
			Key: int32(2000 + i), Controller: controller, Unit: 5 - i, Capacity: int64(i+1)<<30 + int64(i)*512,
			UUID: fmt.Sprintf("6000C29a-4cbb-f2e9-5b95-%012d", i),
		})
	}
	vm.NICs = append(vm.NICs,
		inventory.NIC{Key: 4001, Model: "e1000", MAC: "00:50:56:ab:cd:02", Network: "R&D <dmz>"},
		inventory.NIC{Key: 4002, Model: "sriov", MAC: "00:50:56:ab:cd:03", Network: "on", StartConnected: true})
	vm.BootOrder = []string{"cdrom", "floppy", "disk:2004", "net:4001", "net:4009"}
	return vm
}

// bigOptions has a value in every field.
func bigOptions() Options {
	return Options{
		Namespace: "vms", StorageClass: "fast.example.com", AccessMode: "ReadWriteMany", VolumeMode: "Block",
		Network: "multus:default-net", Maps: namemap.Map{Networks: map[string]namemap.Network{"R&D <dmz>": {To: "multus:infra/dmz.20"}, "on": {To: Pod}}},
	}
}

// newDefinition returns a definition of vm with images as in a stage.
func newDefinition(vm *inventory.VM, reports ...guest.Report) targets.Definition {
	def := targets.Definition{VM: vm, Guest: reports, Decamp: "v0.0.0-test"}
	for i, d := range vm.Disks {
		file := fmt.Sprintf("/srv/stage/vm/vm-disk%d.raw", i)
		def.Images = append(def.Images, targets.Image{
			Key: d.Key, Path: file, Final: file, Format: targets.Raw, Size: d.Capacity, Root: strings.Repeat(fmt.Sprintf("%02x", i), 32),
		})
	}
	return def
}

func withVirtioBlk(def targets.Definition) targets.Definition {
	def.Hardware = targets.VirtioBlk
	return def
}

func withVirtio(def targets.Definition) targets.Definition {
	def.Hardware = targets.Virtio
	return def
}
