package vsphere

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// trackedVM returns web01 with change tracking and an 80 MiB disk.
func trackedVM() VM {
	return VM{Name: "web01", ChangeTracking: true, Disks: []Disk{{Capacity: 80 << 20, Fill: 40, Seed: 1}}}
}

func queryAreas(c *vim25.Client, vm mo.VirtualMachine, key int32, off int64, changeID string, snapshot *types.ManagedObjectReference) (types.DiskChangeInfo, error) {
	res, err := methods.QueryChangedDiskAreas(context.Background(), c, &types.QueryChangedDiskAreas{
		This: vm.Self, Snapshot: snapshot, DeviceKey: key, StartOffset: off, ChangeId: changeID,
	})
	if err != nil {
		return types.DiskChangeInfo{}, err
	}
	return res.Returnval, nil
}

// allAreas reads all pages. Each page starts at StartOffset + Length of the previous one.
func allAreas(t *testing.T, c *vim25.Client, vm mo.VirtualMachine, size int64) (list []types.DiskChangeExtent, pages, empty int) {
	t.Helper()
	for off := int64(0); off < size; pages++ {
		page, err := queryAreas(c, vm, 2000, off, "*", nil)
		if err != nil {
			t.Fatalf("page at %d: %v", off, err)
		}
		if page.StartOffset != off || page.Length <= 0 {
			t.Fatalf("page at %d describes %d+%d", off, page.StartOffset, page.Length)
		}
		if len(page.ChangedArea) == 0 {
			empty++
		}
		list = append(list, page.ChangedArea...)
		off += page.Length
	}
	return list, pages, empty
}

// expectedAreas returns the areas with nonzero bytes, rounded to granularity.
func expectedAreas(t *testing.T, l *Lab, granularity int64) (list []types.DiskChangeExtent) {
	t.Helper()
	p := diskBytes(t, l)
	for off := int64(0); off < int64(len(p)); off += granularity {
		block := p[off:min(off+granularity, int64(len(p)))]
		if !slices.ContainsFunc(block, func(b byte) bool { return b != 0 }) {
			continue
		}
		if n := len(list); n > 0 && list[n-1].Start+list[n-1].Length == off {
			list[n-1].Length += int64(len(block))
			continue
		}
		list = append(list, types.DiskChangeExtent{Start: off, Length: int64(len(block))})
	}
	return list
}

func TestAllocatedAreasAreExactlyTheData(t *testing.T) {
	for _, tc := range []struct {
		cfg       CBT
		wantPages int // minimum number of pages
		wantEmpty bool
	}{
		{CBT{}, 1, false},
		{CBT{Granularity: 1 << 20}, 1, false},
		{CBT{MaxAreas: 1}, 3, false},
		{CBT{EmptyPages: true}, 4, true},
		{CBT{EmptyPages: true, MaxAreas: 1, Granularity: 128 << 10}, 4, true},
	} {
		l := startLab(t, Config{CBT: tc.cfg, VMs: []VM{trackedVM()}})
		c := login(t, l)
		got, pages, empty := allAreas(t, c.Client, allVMs(t, c.Client)["web01"], 80<<20)
		if want := expectedAreas(t, l, int64(l.cfg.CBT.Granularity)); !slices.Equal(got, want) {
			t.Errorf("%+v: areas\n%v\nwant\n%v", tc.cfg, got, want)
		}
		if pages < tc.wantPages || (empty > 0) != tc.wantEmpty {
			t.Errorf("%+v: %d pages, %d empty", tc.cfg, pages, empty)
		}
		var sum int64
		for _, a := range got {
			sum += a.Length
		}
		if disk, _ := l.Disk("web01", 0); disk.Allocated != sum {
			t.Errorf("%+v: %d bytes allocated, the map has %d", tc.cfg, disk.Allocated, sum)
		}
	}
}

func TestMapByKindOfDisk(t *testing.T) {
	whole := []types.DiskChangeExtent{{Start: 0, Length: 80 << 20}}
	for name, change := range map[string]func(*Config){
		"thick":     func(c *Config) { c.VMs[0].Disks[0].Thick = true },
		"NFS":       func(c *Config) { c.Datastores = []Datastore{{Name: "datastore1", Type: "NFS"}} },
		"whole map": func(c *Config) { c.Datastores = []Datastore{{Name: "datastore1", Map: MapWhole}} },
	} {
		cfg := Config{VMs: []VM{trackedVM()}}
		change(&cfg)
		l := startLab(t, cfg)
		c := login(t, l)
		if got, _, _ := allAreas(t, c.Client, allVMs(t, c.Client)["web01"], 80<<20); !slices.Equal(got, whole) {
			t.Errorf("%s: %v", name, got)
		}
	}
	l := startLab(t, Config{Datastores: []Datastore{{Name: "datastore1", Type: "vsan"}}, VMs: []VM{trackedVM()}})
	c := login(t, l)
	if _, err := queryAreas(c.Client, allVMs(t, c.Client)["web01"], 2000, 0, "*", nil); !fault.Is(err, &types.FileFault{}) {
		t.Errorf("vSAN: %v, want FileFault", err)
	}
}

func TestHiddenDataIsOmitted(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{trackedVM()}})
	c := login(t, l)
	vm := allVMs(t, c.Client)["web01"]
	before, _, _ := allAreas(t, c.Client, vm, 80<<20)
	hidden := Span{Offset: before[0].Start + 4096, Length: 8192}
	if err := l.HideFromMap("web01", 0, hidden); err != nil {
		t.Fatal(err)
	}
	after, _, _ := allAreas(t, c.Client, vm, 80<<20)
	want := append([]types.DiskChangeExtent{
		{Start: before[0].Start, Length: 4096},
		{Start: hidden.Offset + hidden.Length, Length: before[0].Length - 4096 - 8192},
	}, before[1:]...)
	if !slices.Equal(after, want) {
		t.Errorf("areas %v, want %v", after, want)
	}
}

func TestQueryRefusals(t *testing.T) {
	plain := trackedVM()
	plain.Name, plain.ChangeTracking = "plain", false
	on := trackedVM()
	on.Name, on.PoweredOn = "on", true
	snapped := on
	snapped.Name, snapped.Snapshots = "snapped", []string{"s1"}
	l := startLab(t, Config{VMs: []VM{trackedVM(), plain, on, snapped}})
	c := login(t, l)
	vms := allVMs(t, c.Client)
	web, snap := vms["web01"], vms["snapped"].Snapshot.CurrentSnapshot
	for _, tc := range []struct {
		what  string
		vm    mo.VirtualMachine
		key   int32
		off   int64
		id    string
		snap  *types.ManagedObjectReference
		fault types.BaseMethodFault
	}{
		{"tracking off", vms["plain"], 2000, 0, "*", nil, &types.FileFault{}},
		{"running without snapshot", vms["on"], 2000, 0, "*", nil, &types.FileFault{}},
		{"running with snapshot", vms["snapped"], 2000, 0, "*", snap, nil},
		{"snapshot of another VM", web, 2000, 0, "*", snap, &types.InvalidArgument{}},
		{"no such disk", web, 2001, 0, "*", nil, &types.InvalidArgument{}},
		{"offset at the end", web, 2000, 80 << 20, "*", nil, &types.InvalidArgument{}},
		{"negative offset", web, 2000, -1, "*", nil, &types.InvalidArgument{}},
		{"made-up id", web, 2000, 0, "52 00/1", nil, &types.FileFault{}},
		{"empty id", web, 2000, 0, "", nil, &types.FileFault{}},
	} {
		_, err := queryAreas(c.Client, tc.vm, tc.key, tc.off, tc.id, tc.snap)
		if tc.fault == nil && err != nil || tc.fault != nil && !fault.Is(err, tc.fault) {
			t.Errorf("%s: %v, want %T", tc.what, err, tc.fault)
		}
	}
}

func TestCurrentChangeIDHasNoChanges(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{trackedVM()}})
	c := login(t, l)
	vm := allVMs(t, c.Client)["web01"]
	id := diskOf(t, vm, 0).Backing.(*types.VirtualDiskFlatVer2BackingInfo).ChangeId
	page, err := queryAreas(c.Client, vm, 2000, 4096, id, nil)
	if err != nil || page.Length != 80<<20-4096 || len(page.ChangedArea) != 0 {
		t.Errorf("page %+v: %v", page, err)
	}
}

// The simulator's tasks assert the type of global objects, and panic if one is a wrapper.
func TestSnapshotAfterQueryDoesNotPanic(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{trackedVM()}})
	c := login(t, l)
	vm := allVMs(t, c.Client)["web01"]
	if _, err := queryAreas(c.Client, vm, 2000, 0, "*", nil); err != nil {
		t.Fatal(err)
	}
	createSnapshot(t, c.Client, vm.Self)
	vm = allVMs(t, c.Client)["web01"]
	if _, err := queryAreas(c.Client, vm, 2000, 0, "*", vm.Snapshot.CurrentSnapshot); err != nil {
		t.Error(err)
	}
	disk, _ := l.Disk("web01", 0)
	var extents int64
	for _, f := range vm.LayoutEx.File {
		if f.Type == "diskExtent" && strings.HasSuffix(f.Name, "-flat.vmdk") {
			extents += f.Size
		}
	}
	if extents != disk.Allocated {
		t.Errorf("after a snapshot the base has %d bytes, %d before", extents, disk.Allocated)
	}
}
