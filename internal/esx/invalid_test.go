package esx

import (
	"slices"
	"strings"
	"testing"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/inventory/inventorytest"
)

// reportedVM returns a VM as a source reports it, after change.
func reportedVM(ref, name string, change func(*types.VirtualMachineConfigInfo)) mo.VirtualMachine {
	c := &types.VirtualMachineConfigInfo{
		Uuid: "564D1234-0000-1111-2222-333344445555", InstanceUuid: "52AA0000-1111-2222-3333-444455556666", GuestId: "debian12_64Guest", Firmware: "efi",
		Files: types.VirtualMachineFileInfo{VmPathName: "[vmfs] web/web.vmx"},
		Hardware: types.VirtualHardware{Device: []types.BaseVirtualDevice{
			&types.VirtualDisk{VirtualDevice: types.VirtualDevice{Key: 2000, Backing: &types.VirtualDiskFlatVer2BackingInfo{
				VirtualDeviceFileBackingInfo: fileBacking("[vmfs] web/web.vmdk", "vmfs"), DiskMode: "persistent", Uuid: "6000C29a-4cbb",
			}}},
			&types.VirtualVmxnet3{VirtualVmxnet: types.VirtualVmxnet{VirtualEthernetCard: types.VirtualEthernetCard{
				VirtualDevice: types.VirtualDevice{Key: 4000}, MacAddress: "00:50:56:AB:CD:EF",
			}}},
		}},
	}
	change(c)
	v := mo.VirtualMachine{Config: c, Runtime: types.VirtualMachineRuntimeInfo{ConnectionState: types.VirtualMachineConnectionStateConnected}}
	v.Self, v.Name = types.ManagedObjectReference{Type: "VirtualMachine", Value: ref}, name
	return v
}

func diskOf(c *types.VirtualMachineConfigInfo) *types.VirtualDiskFlatVer2BackingInfo {
	return c.Hardware.Device[0].(*types.VirtualDisk).Backing.(*types.VirtualDiskFlatVer2BackingInfo)
}

// TestInvalidValuesBlockOneVM lists a valid VM and one with an invalid value. The valid VM has no warning. The other VM
// has one warning that blocks, and the invalid value occurs only in the text of that warning.
func TestInvalidValuesBlockOneVM(t *testing.T) {
	unchanged := func(*types.VirtualMachineConfigInfo) {}
	for what, bad := range map[string]mo.VirtualMachine{
		"MAC": reportedVM("vm-2", "bad", func(c *types.VirtualMachineConfigInfo) {
			c.Hardware.Device[1].(*types.VirtualVmxnet3).MacAddress = "00:50:56:00:00:01,netdev=evil"
		}),
		"UUID":          reportedVM("vm-2", "bad", func(c *types.VirtualMachineConfigInfo) { c.Uuid = "evil" }),
		"instance UUID": reportedVM("vm-2", "bad", func(c *types.VirtualMachineConfigInfo) { c.InstanceUuid = "evil" }),
		"reference":     reportedVM("-evil", "bad", unchanged),
		"firmware":      reportedVM("vm-2", "bad", func(c *types.VirtualMachineConfigInfo) { c.Firmware = "evil" }),
		"guest id":      reportedVM("vm-2", "bad", func(c *types.VirtualMachineConfigInfo) { c.GuestId = "evil;id" }),
		"configuration file": reportedVM("vm-2", "bad", func(c *types.VirtualMachineConfigInfo) {
			c.Files.VmPathName = "[vmfs] ../../evil.vmx"
		}),
		"disk 2000: file":   reportedVM("vm-2", "bad", func(c *types.VirtualMachineConfigInfo) { diskOf(c).FileName = "/evil" }),
		"disk 2000: UUID":   reportedVM("vm-2", "bad", func(c *types.VirtualMachineConfigInfo) { diskOf(c).Uuid = "evil,file=/x" }),
		"disk 2000: change": reportedVM("vm-2", "bad", func(c *types.VirtualMachineConfigInfo) { diskOf(c).ChangeId = "-evil" }),
		"disk 2000: mode":   reportedVM("vm-2", "bad", func(c *types.VirtualMachineConfigInfo) { diskOf(c).DiskMode = "evil mode" }),
		"notes":             reportedVM("vm-2", "bad", func(c *types.VirtualMachineConfigInfo) { c.Annotation = "evil\x00" }),
		"name":              reportedVM("vm-2", "bad\x1bevil", unchanged),
	} {
		tr := smallTree()
		tr.vms = []mo.VirtualMachine{reportedVM("vm-1", "good", unchanged), bad}
		vms := tr.describeSorted()
		if len(vms) != 2 {
			t.Fatalf("%s: %d VMs are listed, want 2", what, len(vms))
		}
		slices.SortFunc(vms, func(a, b inventory.VM) int { return strings.Compare(string(b.Name), string(a.Name)) })
		if w := vms[0].Warnings; len(w) != 0 {
			t.Errorf("%s: the other VM has warnings: %+v", what, w)
		}
		w := vms[1].Warnings
		if len(w) != 1 || w[0].Code != codeInvalid || !w[0].Blocks || w[0].Remedy == "" {
			t.Fatalf("%s: warnings %+v, want one that blocks", what, w)
		}
		if !strings.Contains(w[0].Text, what) || !strings.Contains(w[0].Text, `"bad`) || !strings.Contains(w[0].Text, "evil") {
			t.Errorf("%s: the text does not name the VM, the field and the value: %s", what, w[0].Text)
		}
		if vms[1].RemoveInvalid() != nil {
			t.Errorf("%s: the invalid value is not removed: %+v", what, vms[1])
		}
	}
}

// TestListVMsRemovesInvalidValues checks the same for VMs that ListVMs returns.
func TestListVMsRemovesInvalidValues(t *testing.T) {
	leaves := func(ref string, values map[string]any) types.ObjectContent {
		o := types.ObjectContent{Obj: types.ManagedObjectReference{Type: "VirtualMachine", Value: ref}}
		for name, v := range values {
			o.PropSet = append(o.PropSet, types.DynamicProperty{Name: name, Val: v})
		}
		return o
	}
	tr := smallTree()
	var got []inventory.VM
	err := tr.convertLeaves(func(vms []inventory.VM) error { got = vms; return nil })([]types.ObjectContent{
		leaves("vm-1", map[string]any{"name": "good", "summary.config.numVirtualDisks": int32(3), "config.firmware": "csm"}),
		leaves("vm-2", map[string]any{"name": "bad", "config.uuid": "-uuid", "config.files.vmPathName": "[a] ../x.vmx", "config.firmware": "evil",
			"summary.config.numVirtualDisks": int32(1 << 30)}),
	})
	if err != nil || len(got) != 2 {
		t.Fatalf("%d VMs, %v", len(got), err)
	}
	if len(got[0].Warnings) != 0 || len(got[0].Disks) != 3 || got[0].Firmware != inventory.BIOS {
		t.Errorf("the other VM is %+v", got[0])
	}
	bad := got[1]
	if len(bad.Warnings) != 1 || bad.Warnings[0].Code != codeInvalid || bad.UUID != "" || bad.VMX != (inventory.Path{}) || bad.Firmware != "" || len(bad.Disks) > mostDisks {
		t.Errorf("UUID %q, file %q, firmware %q, %d disks, warnings %+v", bad.UUID, bad.VMX, bad.Firmware, len(bad.Disks), bad.Warnings)
	}
}

// TestHostileVMFieldsCauseBlockingWarning lists VMs with hostile texts in all fields.
func TestHostileVMFieldsCauseBlockingWarning(t *testing.T) {
	r := inventorytest.New(3)
	for range inventorytest.Runs / 10 {
		text := func() string { return inventorytest.Garbage(r) }
		v := reportedVM(text(), text(), func(c *types.VirtualMachineConfigInfo) {
			c.Uuid, c.InstanceUuid, c.GuestId, c.Firmware, c.Annotation, c.GuestFullName, c.Files.VmPathName = text(), text(), text(), text(), text(), text(), "["+text()+"] "+text()
			diskOf(c).FileName, diskOf(c).Uuid, diskOf(c).DiskMode, diskOf(c).ChangeId = "[vmfs] "+text(), text(), text(), text()
			c.Hardware.Device[1].(*types.VirtualVmxnet3).MacAddress = text()
		})
		tr := smallTree()
		tr.vms = []mo.VirtualMachine{v}
		vm := tr.describeSorted()[0]
		if !slices.ContainsFunc(vm.Warnings, func(w inventory.Warning) bool { return w.Code == codeInvalid && w.Blocks }) {
			t.Fatalf("%+v has no blocking warning", vm)
		}
		if vm.RemoveInvalid() != nil || vm.UUID != "" || vm.NICs[0].MAC != "" {
			t.Fatalf("invalid values are not removed: %+v", vm)
		}
	}
}
