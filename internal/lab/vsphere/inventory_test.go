package vsphere

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// allVMs retrieves every VM with all its properties, by name.
func allVMs(t testing.TB, c *vim25.Client) map[string]mo.VirtualMachine {
	t.Helper()
	ctx := context.Background()
	v, err := view.NewManager(c).CreateContainerView(ctx, c.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		t.Fatal(err)
	}
	var list []mo.VirtualMachine
	if err := v.Retrieve(ctx, []string{"VirtualMachine"}, nil, &list); err != nil {
		t.Fatal(err)
	}
	vms := map[string]mo.VirtualMachine{}
	for _, vm := range list {
		vms[vm.Name] = vm
	}
	return vms
}

func diskOf(t *testing.T, vm mo.VirtualMachine, n int) *types.VirtualDisk {
	t.Helper()
	disks := object.VirtualDeviceList(vm.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil))
	if n >= len(disks) {
		t.Fatalf("%s has %d disks, want one more than %d", vm.Name, len(disks), n)
	}
	return disks[n].(*types.VirtualDisk)
}

func TestInventoryMatchesTheConfig(t *testing.T) {
	unit := int32(3)
	l := startLab(t, Config{
		Datastores: []Datastore{{Name: "datastore1"}, {Name: "nas 1", Type: "NFS"}},
		VMs: []VM{{
			Name: "big one", PoweredOn: true, GuestID: "windows2019srvNext_64Guest", Firmware: "efi", SecureBoot: true,
			UUID: "564d0000-1111-2222-3333-444455556666", InstanceUUID: "52000000-1111-2222-3333-444455556666",
			CPUs: 8, CoresPer: 4, MemoryMB: 16384, Annotation: "note & <tag>", KeyID: "key-1", TPM: true, CDROM: true,
			ExtraConfig: map[string]string{"disk.EnableUUID": "TRUE"},
			Disks: []Disk{
				{Capacity: 64 << 20, Fill: 50, Controller: "nvme", Unit: &unit},
				{Capacity: 1 << 20, Thick: true, Controller: "lsisas", Datastore: "nas 1", Mode: "independent_persistent", Sharing: "sharingMultiWriter"},
				{Capacity: 1 << 20, RDM: "physicalMode", Controller: "lsisas"},
			},
			NICs: []NIC{{Model: "e1000e", MAC: "00:50:56:01:02:03", AddressType: "manual", Network: "DMZ"}, {}},
		}},
	})
	vm := allVMs(t, login(t, l).Client)["big one"]
	if vm.Config == nil {
		t.Fatal("the VM is not listed")
	}
	disk := diskOf(t, vm, 0)
	flat := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	thick := diskOf(t, vm, 1).Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	rdm := diskOf(t, vm, 2).Backing.(*types.VirtualDiskRawDiskMappingVer1BackingInfo)
	nics := object.VirtualDeviceList(vm.Config.Hardware.Device).SelectByType((*types.VirtualEthernetCard)(nil))
	nic := nics[0].(*types.VirtualE1000e)
	for _, c := range []struct{ what, got, want string }{
		{"power", string(vm.Runtime.PowerState), "poweredOn"},
		{"guest", vm.Config.GuestId, "windows2019srvNext_64Guest"},
		{"firmware", vm.Config.Firmware, "efi"},
		{"secure boot", fmt.Sprint(*vm.Config.BootOptions.EfiSecureBootEnabled), "true"},
		{"uuid", vm.Config.Uuid, "564d0000-1111-2222-3333-444455556666"},
		{"instance uuid", vm.Config.InstanceUuid, "52000000-1111-2222-3333-444455556666"},
		{"cpus", fmt.Sprint(vm.Config.Hardware.NumCPU, *vm.Config.Hardware.NumCoresPerSocket), "8 4"},
		{"memory", fmt.Sprint(vm.Config.Hardware.MemoryMB), "16384"},
		{"annotation", vm.Config.Annotation, "note & <tag>"},
		{"key", vm.Config.KeyId.KeyId, "key-1"},
		{"tools", vm.Guest.ToolsRunningStatus, "guestToolsRunning"},
		{"disk file", flat.FileName, "[datastore1] big one/big one.vmdk"},
		{"thin", fmt.Sprint(*flat.ThinProvisioned, *thick.ThinProvisioned), "true false"},
		{"disk place", fmt.Sprint(disk.Key, disk.ControllerKey, *disk.UnitNumber, disk.CapacityInBytes), "32003 31000 3 67108864"},
		{"second disk", thick.FileName + " " + thick.DiskMode + " " + thick.Sharing, "[nas 1] big one/big one_1.vmdk independent_persistent sharingMultiWriter"},
		{"rdm", rdm.CompatibilityMode, "physicalMode"},
		{"nic", nic.MacAddress + " " + nic.AddressType + " " + nic.Backing.(*types.VirtualEthernetCardNetworkBackingInfo).DeviceName, "00:50:56:01:02:03 manual DMZ"},
		{"nics", fmt.Sprint(len(nics)), "2"},
		{"committed", fmt.Sprint(vm.Summary.Storage.Committed > 1<<20, vm.Summary.Storage.Committed+vm.Summary.Storage.Uncommitted > 65<<20), "true true"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
	all := object.VirtualDeviceList(vm.Config.Hardware.Device)
	if len(all.SelectByType((*types.VirtualTPM)(nil))) != 1 || len(all.SelectByType((*types.VirtualCdrom)(nil))) != 1 {
		t.Error("no TPM or no CD-ROM")
	}
	if !slices.ContainsFunc(vm.Config.ExtraConfig, func(o types.BaseOptionValue) bool { return o.GetOptionValue().Key == "disk.EnableUUID" }) {
		t.Error("no disk.EnableUUID")
	}
}

func TestUsedAndProvisioned(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	vm := allVMs(t, login(t, l).Client)["web01"]
	disk, err := l.Disk("web01", 0)
	if err != nil {
		t.Fatal(err)
	}
	var extents, descriptors, home int64
	for _, f := range vm.LayoutEx.File {
		switch f.Type {
		case "diskExtent":
			extents += f.Size
		case "diskDescriptor":
			descriptors += f.Size
		default:
			home += f.Size
		}
	}
	if extents != disk.Allocated || extents == 0 {
		t.Errorf("extent files have %d bytes, the disk %d allocated", extents, disk.Allocated)
	}
	if s := vm.Summary.Storage; s.Committed != extents+descriptors+home || s.Uncommitted != disk.Size-disk.Allocated {
		t.Errorf("committed %d, uncommitted %d of files %d, capacity %d", s.Committed, s.Uncommitted, extents+descriptors+home, disk.Size)
	}
}

func TestSnapshotsHaveAChain(t *testing.T) {
	vm := web01()
	vm.Snapshots, vm.ChangeTracking = []string{"first", "second"}, true
	vm.Disks = append(vm.Disks, Disk{Capacity: 1 << 20, Mode: "independent_persistent"})
	l := startLab(t, Config{VMs: []VM{vm}})
	got := allVMs(t, login(t, l).Client)["web01"]
	if got.Snapshot == nil || got.Snapshot.RootSnapshotList[0].ChildSnapshotList[0].Name != "second" {
		t.Fatalf("snapshot tree: %+v", got.Snapshot)
	}
	top := diskOf(t, got, 0).Backing.(*types.VirtualDiskSeSparseBackingInfo)
	if top.FileName != "[datastore1] web01/web01-000002.vmdk" || top.Parent.Parent.FileName != "[datastore1] web01/web01.vmdk" {
		t.Errorf("the chain starts at %s", top.FileName)
	}
	if !strings.HasSuffix(top.ChangeId, "/3") || len(top.ChangeId) != 49 {
		t.Errorf("change id %q", top.ChangeId)
	}
	if b := diskOf(t, got, 1).Backing.(*types.VirtualDiskFlatVer2BackingInfo); b.FileName != "[datastore1] web01/web01_1.vmdk" {
		t.Errorf("the independent disk is on %s", b.FileName)
	}
}

func TestSpecialNames(t *testing.T) {
	names := map[string]string{ // names of the configuration, and names in the inventory
		"two words": "two words", "50% off": "50%25 off", "a+b": "a+b", "star*": "star*", "a/b": "a%2fb",
		`back\slash`: `back%5cslash`, `"quoted" 'twice'`: `"quoted" 'twice'`, "Žižkov–日本": "Žižkov–日本", "a&b#c?d=e": "a&b#c?d=e",
	}
	var cfg Config
	for name := range names {
		cfg.VMs = append(cfg.VMs, VM{Name: name, PoweredOn: name == "a+b", Disks: []Disk{{Capacity: 64 << 10, Fill: 100, Seed: 7}}})
	}
	l := startLab(t, cfg)
	vms := allVMs(t, login(t, l).Client)
	for name, shown := range names {
		vm, ok := vms[shown]
		if !ok {
			t.Errorf("%s: not listed as %s", name, shown)
			continue
		}
		var path object.DatastorePath
		path.FromString(diskOf(t, vm, 0).Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName)
		resp, data, err := fetch(t, newClient(t, l), folderRequest(t, l, "GET", folderURL(l, path.Path)))
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(data), `createType="vmfs"`) {
			t.Errorf("%s: descriptor: %v %v", name, resp, err)
		}
		want := 200
		if name == "a+b" {
			want = 500 // the running VM locks the file
		}
		resp, _, err = fetch(t, newClient(t, l), folderRequest(t, l, "GET", folderURL(l, strings.TrimSuffix(path.Path, ".vmdk")+"-flat.vmdk")))
		if err != nil || resp.StatusCode != want {
			t.Errorf("%s: flat: %v %v", name, resp, err)
		}
	}
}

func TestVCenterHasDatacentersHostsAndDatastores(t *testing.T) {
	l := startLab(t, Config{VCenter: true, VMs: []VM{
		{Name: "one", Disks: []Disk{{Capacity: 1 << 20, Fill: 100}}},
		{Name: "two", Host: "esx2.lab", Datastore: "datastore2", Disks: []Disk{{Capacity: 1 << 20, Fill: 100}}},
	}})
	c := login(t, l)
	if !c.IsVC() {
		t.Fatal("not a vCenter")
	}
	ctx := context.Background()
	finder := find.NewFinder(c.Client)
	dc, err := finder.Datacenter(ctx, "/Lab/DC1")
	if err != nil {
		t.Fatal(err)
	}
	finder.SetDatacenter(dc)
	hosts, err := finder.HostSystemList(ctx, "*/*")
	if err != nil || len(hosts) != 2 {
		t.Fatalf("hosts %v: %v", hosts, err)
	}
	var host mo.HostSystem
	vm, err := finder.VirtualMachine(ctx, "two")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := vm.HostSystem(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := property.DefaultCollector(c.Client).RetrieveOne(ctx, ref.Reference(), []string{"name", "config.product"}, &host); err != nil {
		t.Fatal(err)
	}
	if host.Name != "esx2.lab" || host.Config.Product.Version != "8.0.3" {
		t.Errorf("VM two is on %s %s", host.Name, host.Config.Product.Version)
	}
	if ds, err := finder.DatastoreList(ctx, "*"); err != nil || len(ds) != 2 {
		t.Errorf("datastores %v: %v", ds, err)
	}
}
