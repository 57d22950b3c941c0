package esx

import (
	"reflect"
	"testing"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

func ref(kind, value string) types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: kind, Value: value}
}

func ptr[T any](v T) *T { return &v }

func fileBacking(name, datastore string) types.VirtualDeviceFileBackingInfo {
	ds := ref("Datastore", datastore)
	return types.VirtualDeviceFileBackingInfo{FileName: name, Datastore: &ds}
}

// smallTree returns a tree with a datacenter in a folder, a vApp, a host and datastores of several types.
func smallTree() *tree {
	root, f, dc := ref("Folder", "group-d1"), ref("Folder", "group-d2"), ref("Datacenter", "datacenter-3")
	vms, prod, app := ref("Folder", "group-v4"), ref("Folder", "group-v5"), ref("VirtualApp", "resgroup-v6")
	t := newTree(root)
	t.nodes[root] = node{"Datacenters", nil}
	t.nodes[f] = node{"F", &root}
	t.nodes[dc] = node{"DC%2f1", &f}
	t.nodes[vms] = node{"vm", &dc}
	t.nodes[prod] = node{"prod", &vms}
	t.nodes[app] = node{"app", &prod}
	blue := ref("ClusterComputeResource", "domain-c7")
	t.clusters[blue] = "blue"
	t.hosts[ref("HostSystem", "host-1")] = mo.HostSystem{ManagedEntity: mo.ManagedEntity{Name: "esx1.example", Parent: &blue}}
	for name, kind := range map[string]string{"vmfs": "VMFS", "vsan": "vsan", "vvol": "VVOL"} {
		t.datastores[ref("Datastore", name)] = mo.Datastore{Summary: types.DatastoreSummary{Type: kind}}
	}
	t.portgroups["dvportgroup-9"] = "VLAN/20"
	return t
}

func TestMachineIsDescribedCompletely(t *testing.T) {
	host, prod := ref("HostSystem", "host-1"), ref("Folder", "group-v5")
	base := &types.VirtualDiskFlatVer2BackingInfo{VirtualDeviceFileBackingInfo: fileBacking("[vmfs] web/web.vmdk", "vmfs"), ThinProvisioned: ptr(true)}
	v := &mo.VirtualMachine{
		Runtime: types.VirtualMachineRuntimeInfo{
			ConnectionState: types.VirtualMachineConnectionStateConnected, PowerState: types.VirtualMachinePowerStatePoweredOff, Host: &host,
		},
		Guest: &types.GuestInfo{ToolsRunningStatus: string(types.VirtualMachineToolsRunningStatusGuestToolsNotRunning)},
		Snapshot: &types.VirtualMachineSnapshotInfo{RootSnapshotList: []types.VirtualMachineSnapshotTree{
			{ChildSnapshotList: []types.VirtualMachineSnapshotTree{{}, {}}},
		}},
		LayoutEx: &types.VirtualMachineFileLayoutEx{
			File: []types.VirtualMachineFileLayoutExFileInfo{{Key: 1, Size: 500}, {Key: 2, Size: 1 << 30}, {Key: 3, Size: 400}, {Key: 4, Size: 1 << 20}, {Key: 5, Size: 7, Type: "nvram", Name: "[vmfs] web/web.nvram"}},
			Disk: []types.VirtualMachineFileLayoutExDiskLayout{{Key: 2000, Chain: []types.VirtualMachineFileLayoutExDiskUnit{
				{FileKey: []int32{1, 2}}, {FileKey: []int32{3, 4}},
			}}},
		},
		Config: &types.VirtualMachineConfigInfo{
			Uuid: "564D1234-0000-1111-2222-333344445555", InstanceUuid: "52AB", GuestId: "debian12_64Guest", GuestFullName: "Debian 12",
			Version: "vmx-21", Firmware: "efi", Annotation: "note", KeyId: nil, ChangeTrackingEnabled: ptr(true),
			Files: types.VirtualMachineFileInfo{VmPathName: "[vmfs] web/web.vmx"},
			BootOptions: &types.VirtualMachineBootOptions{
				EfiSecureBootEnabled: ptr(true),
				BootOrder: []types.BaseVirtualMachineBootOptionsBootableDevice{
					&types.VirtualMachineBootOptionsBootableEthernetDevice{DeviceKey: 4000},
					&types.VirtualMachineBootOptionsBootableDiskDevice{DeviceKey: 2000},
					&types.VirtualMachineBootOptionsBootableCdromDevice{},
				},
			},
			Hardware: types.VirtualHardware{NumCPU: 4, NumCoresPerSocket: ptr(int32(2)), MemoryMB: 8192, Device: []types.BaseVirtualDevice{
				&types.VirtualKeyboard{},
				&types.ParaVirtualSCSIController{VirtualSCSIController: types.VirtualSCSIController{
					VirtualController: types.VirtualController{VirtualDevice: types.VirtualDevice{Key: 1000}, BusNumber: 0}, SharedBus: "noSharing",
				}},
				&types.VirtualDisk{
					VirtualDevice: types.VirtualDevice{
						Key: 2000, ControllerKey: 1000, UnitNumber: ptr(int32(3)), DeviceInfo: &types.Description{Label: "Hard disk 1"},
						Backing: &types.VirtualDiskFlatVer2BackingInfo{
							VirtualDeviceFileBackingInfo: fileBacking("[vmfs] web/web-000001.vmdk", "vmfs"), DiskMode: "persistent",
							Uuid: "6000C29a", ChangeId: "52 2d/7", Sharing: "sharingNone", Parent: base,
						},
					},
					CapacityInBytes: 10 << 30,
				},
				&types.VirtualVmxnet3{VirtualVmxnet: types.VirtualVmxnet{VirtualEthernetCard: types.VirtualEthernetCard{
					VirtualDevice: types.VirtualDevice{
						Key: 4000, DeviceInfo: &types.Description{Label: "Network adapter 1"},
						Connectable: &types.VirtualDeviceConnectInfo{Connected: false, StartConnected: true},
						Backing:     &types.VirtualEthernetCardDistributedVirtualPortBackingInfo{Port: types.DistributedVirtualSwitchPortConnection{PortgroupKey: "dvportgroup-9"}},
					},
					MacAddress: "00:50:56:AB:CD:EF", AddressType: "manual",
				}}},
				&types.VirtualTPM{},
			}},
		},
	}
	v.Self, v.Name, v.Parent = ref("VirtualMachine", "vm-42"), "web%2f01", &prod
	want := inventory.VM{
		Ref: "vm-42", Name: "web/01", UUID: "564d1234-0000-1111-2222-333344445555", InstanceUUID: "52ab",
		Host: "host-1", HostName: "esx1.example", Cluster: "blue", Datacenter: "F/DC%2f1", Folder: "prod",
		VMX:   inventory.Path{Datastore: "vmfs", File: "web/web.vmx"},
		NVRAM: inventory.Path{Datastore: "vmfs", File: "web/web.nvram"},
		Power: inventory.PoweredOff, GuestID: "debian12_64Guest", GuestName: "Debian 12", HardwareVersion: 21, Annotation: "note",
		CPUs: 4, CoresPerSocket: 2, MemoryMiB: 8192, Firmware: inventory.EFI, SecureBoot: true, VTPM: true,
		Controllers: []inventory.Controller{{Key: 1000, Bus: inventory.PVSCSI}},
		Disks: []inventory.Disk{{
			Key: 2000, Label: "Hard disk 1", Controller: 1000, Unit: 3, Capacity: 10 << 30, Used: 1<<30 + 1<<20 + 900,
			Path: inventory.Path{Datastore: "vmfs", File: "web/web-000001.vmdk"}, Base: inventory.Path{Datastore: "vmfs", File: "web/web.vmdk"},
			Backing: inventory.Delta, Thin: true, Mode: "persistent", UUID: "6000C29a", ChangeID: "52 2d/7", Layers: 2,
		}},
		NICs: []inventory.NIC{{
			Key: 4000, Label: "Network adapter 1", Model: "vmxnet3", MAC: "00:50:56:ab:cd:ef", AddressType: "manual",
			Network: "VLAN/20", StartConnected: true,
		}},
		BootOrder: []string{"net:4000", "disk:2000", "cdrom"}, Snapshots: 3, ChangeTracking: true,
		Used: 1<<30 + 1<<20 + 900, Provisioned: 10 << 30,
	}
	if got := smallTree().toMachine(v).VM; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestLocateVMsInVAppsAndFolders(t *testing.T) {
	tr := smallTree()
	app, hidden := ref("VirtualApp", "resgroup-v6"), ref("Folder", "group-hidden")
	for _, c := range []struct {
		parent             *types.ManagedObjectReference
		datacenter, folder string
	}{{&app, "F/DC%2f1", "prod/app"}, {&hidden, "", ""}, {nil, "", ""}, {ptr(ref("Folder", "group-v4")), "F/DC%2f1", ""}} {
		if dc, folder := tr.locate(c.parent); dc != c.datacenter || folder != c.folder {
			t.Errorf("%v: %q %q, want %q %q", c.parent, dc, folder, c.datacenter, c.folder)
		}
	}
}

func TestVMWithoutConfigurationIsKept(t *testing.T) {
	v := &mo.VirtualMachine{Runtime: types.VirtualMachineRuntimeInfo{ConnectionState: types.VirtualMachineConnectionStateInaccessible}}
	v.Self, v.Name = ref("VirtualMachine", "vm-1"), "gone"
	tr := smallTree()
	tr.vms = []mo.VirtualMachine{*v}
	got := tr.describeSorted()
	if len(got) != 1 || got[0].Name != "gone" || len(got[0].Warnings) != 1 || got[0].Warnings[0].Code != "inaccessible" {
		t.Fatalf("%+v", got)
	}
}

func TestBackings(t *testing.T) {
	flat := func(ds string, parent *types.VirtualDiskFlatVer2BackingInfo) types.BaseVirtualDeviceBackingInfo {
		return &types.VirtualDiskFlatVer2BackingInfo{VirtualDeviceFileBackingInfo: fileBacking("[x] a.vmdk", ds), Parent: parent}
	}
	sparse := &types.VirtualDiskSeSparseBackingInfo{VirtualDeviceFileBackingInfo: fileBacking("[x] b.vmdk", "vmfs")}
	for _, c := range []struct {
		backing types.BaseVirtualDeviceBackingInfo
		want    inventory.Backing
		layers  int
	}{
		{flat("vmfs", nil), inventory.Flat, 1},
		{flat("nowhere", nil), inventory.Flat, 1},
		{flat("vmfs", &types.VirtualDiskFlatVer2BackingInfo{}), inventory.Delta, 2},
		{flat("vsan", nil), inventory.VSAN, 1},
		{flat("vvol", nil), inventory.VVol, 1},
		{sparse, inventory.SESparse, 1},
		{&types.VirtualDiskSeSparseBackingInfo{Parent: sparse}, inventory.SESparse, 2},
		{&types.VirtualDiskSparseVer2BackingInfo{}, inventory.Delta, 1},
		{&types.VirtualDiskRawDiskMappingVer1BackingInfo{VirtualDeviceFileBackingInfo: fileBacking("[x] r.vmdk", "vsan")}, inventory.RDM, 1},
		{&types.VirtualDiskRawDiskVer2BackingInfo{}, inventory.UnknownBacking, 0},
		{&types.VirtualDiskLocalPMemBackingInfo{}, inventory.UnknownBacking, 1},
		{nil, inventory.UnknownBacking, 0},
	} {
		d := smallTree().toDisk(&types.VirtualDisk{VirtualDevice: types.VirtualDevice{Key: 2000, Backing: c.backing}, CapacityInKB: 2}, nil)
		if d.Backing != c.want || d.Layers != c.layers || d.Used != -1 || d.Capacity != 2048 {
			t.Errorf("%T: %+v, want %s with %d layers", c.backing, d, c.want, c.layers)
		}
	}
}

func TestControllers(t *testing.T) {
	for _, c := range []struct {
		device types.BaseVirtualController
		want   inventory.Controller
		ok     bool
	}{
		{&types.ParaVirtualSCSIController{}, inventory.Controller{Bus: inventory.PVSCSI}, true},
		{&types.VirtualLsiLogicController{}, inventory.Controller{Bus: inventory.LSILogic}, true},
		{&types.VirtualLsiLogicSASController{VirtualSCSIController: types.VirtualSCSIController{SharedBus: types.VirtualSCSISharingPhysicalSharing}},
			inventory.Controller{Bus: inventory.LSISAS, SharedBus: true}, true},
		{&types.VirtualBusLogicController{}, inventory.Controller{Bus: inventory.BusLogic}, true},
		{&types.VirtualNVMEController{SharedBus: "physicalSharing"}, inventory.Controller{Bus: inventory.NVMe, SharedBus: true}, true},
		{&types.VirtualAHCIController{}, inventory.Controller{Bus: inventory.AHCI}, true},
		{&types.VirtualIDEController{}, inventory.Controller{Bus: inventory.IDE}, true},
		{&types.VirtualSATAController{}, inventory.Controller{Unexpected: "VirtualSATAController"}, true},
		{&types.VirtualNVDIMMController{}, inventory.Controller{Unexpected: "VirtualNVDIMMController"}, true},
		{&types.VirtualUSBXHCIController{}, inventory.Controller{}, false},
		{&types.VirtualPS2Controller{}, inventory.Controller{}, false},
	} {
		if got, ok := toController(c.device); got != c.want || ok != c.ok {
			t.Errorf("%T: %+v %v, want %+v %v", c.device, got, ok, c.want, c.ok)
		}
	}
}

func TestDevicesWithWarnings(t *testing.T) {
	drive := func(c *types.VirtualDeviceConnectInfo, b types.BaseVirtualDeviceBackingInfo) *types.VirtualCdrom {
		return &types.VirtualCdrom{VirtualDevice: types.VirtualDevice{DeviceInfo: &types.Description{Label: "CD"}, Connectable: c, Backing: b}}
	}
	iso := &types.VirtualCdromIsoBackingInfo{VirtualDeviceFileBackingInfo: fileBacking("[vmfs] x.iso", "vmfs")}
	v := &mo.VirtualMachine{Config: &types.VirtualMachineConfigInfo{Hardware: types.VirtualHardware{Device: []types.BaseVirtualDevice{
		drive(nil, iso),
		drive(&types.VirtualDeviceConnectInfo{}, iso),
		drive(&types.VirtualDeviceConnectInfo{StartConnected: true}, &types.VirtualCdromIsoBackingInfo{}),
		drive(&types.VirtualDeviceConnectInfo{StartConnected: true}, iso),
		drive(&types.VirtualDeviceConnectInfo{Connected: true}, &types.VirtualCdromAtapiBackingInfo{}),
		&types.VirtualPCIPassthrough{}, &types.VirtualUSB{}, &types.VirtualSriovEthernetCard{},
		&types.VirtualDisk{VirtualDevice: types.VirtualDevice{Key: 2003, Backing: &types.VirtualDiskRawDiskMappingVer1BackingInfo{CompatibilityMode: "physicalMode"}}},
		&types.VirtualDisk{VirtualDevice: types.VirtualDevice{Key: 2004, Backing: &types.VirtualDiskRawDiskMappingVer1BackingInfo{CompatibilityMode: "virtualMode"}}},
	}}}}
	m := &machine{}
	smallTree().addDevices(m, v)
	if m.CDROMs != 5 || !reflect.DeepEqual(m.media, []string{"CD", "CD"}) {
		t.Errorf("%d drives, media in %q", m.CDROMs, m.media)
	}
	if want := []string{"VirtualPCIPassthrough", "VirtualUSB", "VirtualSriovEthernetCard"}; !reflect.DeepEqual(m.passthrough, want) {
		t.Errorf("passthrough %q, want %q", m.passthrough, want)
	}
	if !reflect.DeepEqual(m.physicalRDM, []int32{2003}) || len(m.NICs) != 1 || m.NICs[0].Model != "sriov" {
		t.Errorf("physical RDMs %v, NICs %+v", m.physicalRDM, m.NICs)
	}
}

func TestClusterAgents(t *testing.T) {
	for _, c := range []*types.VirtualMachineConfigInfo{
		{ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "HDCS.agent", Value: "true"}}},
		{ManagedBy: &types.ManagedByInfo{ExtensionKey: "com.vmware.vim.eam"}},
	} {
		if !isAgent(c) {
			t.Errorf("%+v is not reported as an agent", c)
		}
	}
	if isAgent(&types.VirtualMachineConfigInfo{ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "svga.present", Value: "TRUE"}}}) {
		t.Error("an ordinary VM is reported as an agent")
	}
}

func TestMissingPropertiesOfAnEndedSession(t *testing.T) {
	ended := types.ObjectContent{Obj: ref("VirtualMachine", "vm-1"), MissingSet: []types.MissingProperty{
		{Path: "config", Fault: types.LocalizedMethodFault{Fault: &types.NotAuthenticated{}}},
	}}
	if err := newTree(ref("Folder", "r")).addAll([]types.ObjectContent{ended}); !isSessionEnded(err) {
		t.Errorf("error %v", err)
	}
	hidden := ended
	hidden.MissingSet = []types.MissingProperty{{Path: "config", Fault: types.LocalizedMethodFault{Fault: &types.NoPermission{}}}}
	tr := newTree(ref("Folder", "r"))
	if err := tr.addAll([]types.ObjectContent{hidden}); err != nil || len(tr.vms) != 1 {
		t.Errorf("%d VMs, %v", len(tr.vms), err)
	}
}
