package vsphere

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/test/lane"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// writingVM returns a running VM with two disks and change tracking.
func writingVM() VM {
	return VM{
		Name: "web01", PoweredOn: true, ChangeTracking: true, Guest: Guest{Writes: Writes{Seed: 7, Spread: 40, AtStop: 5}},
		Disks: []Disk{{Capacity: 16 << 20, Fill: 30, Seed: 1}, {Capacity: 8<<20 + 512, Fill: 10, Seed: 2}},
	}
}

// testVM is a lab with one VM and a client of its API.
type testVM struct {
	t   *testing.T
	lab *Lab
	c   *vim25.Client
	vm  *object.VirtualMachine
}

func newTestVM(t *testing.T, cfg Config) *testVM {
	t.Helper()
	l := startLab(t, cfg)
	c := login(t, l).Client
	return &testVM{t, l, c, object.NewVirtualMachine(c, allVMs(t, c)[cfg.VMs[0].Name].Self)}
}

// createSnapshot creates a snapshot and returns its reference.
func (r *testVM) createSnapshot(name string) types.ManagedObjectReference {
	r.t.Helper()
	task, err := r.vm.CreateSnapshot(context.Background(), name, "", false, false)
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := task.WaitForResult(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return info.Result.(types.ManagedObjectReference)
}

func (r *testVM) removeSnapshot(ref types.ManagedObjectReference) error {
	res, err := methods.RemoveSnapshot_Task(context.Background(), r.c, &types.RemoveSnapshot_Task{This: ref})
	if err != nil {
		return err
	}
	return object.NewTask(r.c, res.Returnval).Wait(context.Background())
}

func (r *testVM) setTracking(on bool) {
	r.t.Helper()
	task, err := r.vm.Reconfigure(context.Background(), types.VirtualMachineConfigSpec{ChangeTrackingEnabled: &on})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := task.Wait(context.Background()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *testVM) guestWrite(n int) {
	r.t.Helper()
	if err := r.lab.GuestWrites("web01", n); err != nil {
		r.t.Fatal(err)
	}
}

func (r *testVM) readVM() mo.VirtualMachine { r.t.Helper(); return allVMs(r.t, r.c)["web01"] }

// frozenDisk returns the file and the change id of a disk in a snapshot's configuration.
func (r *testVM) frozenDisk(ref types.ManagedObjectReference, disk int) (file, id string) {
	r.t.Helper()
	var s mo.VirtualMachineSnapshot
	if err := r.vm.Properties(context.Background(), ref, []string{"config"}, &s); err != nil {
		r.t.Fatal(err)
	}
	return backingOf(r.t, object.VirtualDeviceList(s.Config.Hardware.Device), disk)
}

func backingOf(t *testing.T, devices object.VirtualDeviceList, disk int) (file, id string) {
	t.Helper()
	switch b := devices.SelectByType((*types.VirtualDisk)(nil))[disk].GetVirtualDevice().Backing.(type) {
	case *types.VirtualDiskFlatVer2BackingInfo:
		return b.FileName, b.ChangeId
	case *types.VirtualDiskSeSparseBackingInfo:
		return b.FileName, b.ChangeId
	default:
		t.Fatalf("backing %T", b)
	}
	return "", ""
}

// changedAreas returns the changed areas of a disk, from all pages.
func (r *testVM) changedAreas(disk int, id string, snapshot *types.ManagedObjectReference) (list []types.DiskChangeExtent, err error) {
	r.t.Helper()
	content, _ := r.lab.Disk("web01", disk)
	vm := r.readVM()
	for off := int64(0); off < content.Size; {
		page, err := queryAreas(r.c, vm, content.Key, off, id, snapshot)
		if err != nil {
			return nil, err
		}
		list = append(list, page.ChangedArea...)
		off += page.Length
	}
	return list, nil
}

func readContent(t *testing.T, c DiskContent, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, c.Size)
	if n, err := c.ReadAt(p, 0); n != len(p) || err != nil && err != io.EOF {
		t.Fatalf("%d bytes: %v", n, err)
	}
	return p
}

func TestSnapshotFreezesTheDisk(t *testing.T) {
	r := newTestVM(t, Config{VMs: []VM{writingVM()}})
	r.guestWrite(20)
	disk, err := r.lab.Disk("web01", 0)
	before := readContent(t, disk, err)
	s1 := r.createSnapshot("s1")
	if file, id := r.frozenDisk(s1, 0); file != nfcPath || id == "" {
		t.Errorf("the frozen disk is %s with id %q", file, id)
	}
	vm := r.readVM()
	if file, _ := backingOf(t, vm.Config.Hardware.Device, 0); file != "[datastore1] web01/web01-000001.vmdk" {
		t.Errorf("the VM writes to %s", file)
	}
	r.guestWrite(20)
	if after := readContent(t, disk, nil); bytes.Equal(after, before) {
		t.Error("the guest wrote nothing")
	}
	at, err := r.lab.DiskAt("web01", 0, "s1")
	if !bytes.Equal(readContent(t, at, err), before) {
		t.Error("the frozen disk has changed")
	}
	// NFC can read the frozen disk, but not the active disk. /folder can read neither.
	f, err := openNFC(t, r.lab, "web01", nfcPath, false, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for off := int64(0); off < f.size; off += 8 << 20 {
		if got, err := f.readAt(off, 8<<20, 3); err != nil || !bytes.Equal(got, before[off:off+8<<20]) {
			t.Errorf("the frozen disk over NFC at %d: %v", off, err)
		}
	}
	if _, err := openNFC(t, r.lab, "web01", "[datastore1] web01/web01-000001.vmdk", false, 0, 0); err == nil || !strings.Contains(err.Error(), "multiwriter") {
		t.Errorf("the active disk over NFC: %v", err)
	}
	if got := fetchStatus(t, newClient(t, r.lab), folderRequest(t, r.lab, "HEAD", folderURL(r.lab, flat))); got != 500 {
		t.Errorf("the frozen disk by /folder: %d", got)
	}
	// After the merge, reads of the frozen disk fail.
	if err := r.removeSnapshot(s1); err != nil {
		t.Fatal(err)
	}
	var refused *nfcError
	if _, err := f.readAt(0, 4096, 0); !errors.As(err, &refused) {
		t.Errorf("read after the merge: %v", err)
	}
	if file, _ := backingOf(t, r.readVM().Config.Hardware.Device, 0); file != nfcPath {
		t.Errorf("after the removal the VM writes to %s", file)
	}
}

// The test copies the changes between snapshots in rounds, and finally those of the
// powered-off VM. The image equals the disk after each round.
func TestRoundsOfChangesProduceTheDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, kind := range []string{"VMFS", "NFS"} {
		for i, cbt := range []CBT{{}, {MaxAreas: 3, EmptyPages: true}, {Granularity: 256 << 10}} {
			if (kind == "NFS") != (i == 1) && !lane.Slow {
				continue
			}
			r := newTestVM(t, Config{CBT: cbt, Datastores: []Datastore{{Name: "datastore1", Type: kind}}, VMs: []VM{writingVM()}})
			r.guestWrite(10)
			last := r.createSnapshot("round 0")
			images, ids := make([][]byte, 2), make([]string, 2)
			for i := range images {
				at, err := r.lab.DiskAt("web01", i, "round 0")
				images[i] = readContent(t, at, err)
				_, ids[i] = r.frozenDisk(last, i)
			}
			for round := 1; round <= 4; round++ {
				r.guestWrite(5)
				next := r.createSnapshot(fmt.Sprintf("round %d", round))
				r.guestWrite(3) // must not be in the round
				for i := range images {
					at, err := r.lab.DiskAt("web01", i, fmt.Sprintf("round %d", round))
					r.applyChanges(images[i], i, ids[i], &next, at, err)
					_, ids[i] = r.frozenDisk(next, i)
				}
				if err := r.removeSnapshot(last); err != nil {
					t.Fatal(err)
				}
				last = next
			}
			if err := r.lab.SetPower("web01", false); err != nil {
				t.Fatal(err)
			}
			for i := range images {
				now, err := r.lab.Disk("web01", i)
				r.applyChanges(images[i], i, ids[i], nil, now, err)
			}
			if err := r.removeSnapshot(last); err != nil {
				t.Fatal(err)
			}
			for i := range images {
				now, err := r.lab.Disk("web01", i)
				if !bytes.Equal(images[i], readContent(t, now, err)) {
					t.Errorf("%s %+v: the removal of the last snapshot changed disk %d", kind, cbt, i)
				}
			}
		}
	}
}

// applyChanges copies the changed areas to image, and compares it with the disk.
func (r *testVM) applyChanges(image []byte, disk int, id string, snapshot *types.ManagedObjectReference, at DiskContent, err error) {
	r.t.Helper()
	want := readContent(r.t, at, err)
	list, err := r.changedAreas(disk, id, snapshot)
	if err != nil {
		r.t.Fatal(err)
	}
	var sum int64
	for _, a := range list {
		copy(image[a.Start:a.Start+a.Length], want[a.Start:])
		sum += a.Length
	}
	if !bytes.Equal(image, want) {
		r.t.Errorf("the changes since %s do not produce disk %d", id, disk)
	}
	if sum == int64(len(image)) {
		r.t.Errorf("the changed areas cover all of disk %d", disk)
	}
}

// Other programs can read the delta files. The test uses qemu's VMDK driver.
func TestQemuReadsDeltas(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	qemu, err := exec.LookPath("qemu-img")
	if err != nil {
		t.Skip("qemu-img is not installed")
	}
	for _, kind := range []string{"VMFS", "NFS"} {
		vm := writingVM()
		vm.Guest.Writes.Spread, vm.Disks[0].Capacity = 100, 32<<20 // pages past the first table of either format
		r := newTestVM(t, Config{Datastores: []Datastore{{Name: "datastore1", Type: kind}}, VMs: []VM{vm}})
		for i := range 3 {
			r.guestWrite(20)
			r.createSnapshot(fmt.Sprint(i))
		}
		r.guestWrite(20)
		if err := r.lab.SetPower("web01", false); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"web01", "web01_1"} {
			dir := t.TempDir()
			for _, file := range r.diskFiles(name) {
				_, data, err := fetch(t, newClient(t, r.lab), folderRequest(t, r.lab, "GET", folderURL(r.lab, "web01/"+file)))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, file), data, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command(qemu, "convert", "-O", "raw", filepath.Join(dir, name+"-000003.vmdk"), filepath.Join(dir, "raw")).CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v %s", kind, err, out)
			}
			got, err := os.ReadFile(filepath.Join(dir, "raw"))
			if err != nil {
				t.Fatal(err)
			}
			now, err := r.lab.Disk("web01", i)
			if !bytes.Equal(got, readContent(t, now, err)) {
				t.Errorf("%s: qemu-img reads different content of disk %d", kind, i)
			}
		}
	}
}

// diskFiles returns the files of one disk in the VM's folder.
func (r *testVM) diskFiles(stem string) (names []string) {
	r.t.Helper()
	ds := r.lab.datacenters[0].datastores[0]
	for _, path := range ds.filePaths() {
		names = append(names, filepath.Base(path))
	}
	entries, err := os.ReadDir(filepath.Join(ds.dir, "web01"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	var files []string
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, stem); ok && (rest[0] == '-' || rest == ".vmdk") && strings.HasSuffix(name, ".vmdk") && !strings.Contains(name, "ctk") {
			files = append(files, name)
		}
	}
	return files
}

// folderNames returns the names of the VM's files that the lab stores on disk.
func (r *testVM) folderNames() (names []string) {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.lab.datacenters[0].datastores[0].dir, "web01"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestSnapshotsRemovedInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		r := newTestVM(t, Config{VMs: []VM{writingVM()}})
		before := r.folderNames()
		var refs []types.ManagedObjectReference
		for i := range 3 {
			r.guestWrite(10)
			refs = append(refs, r.createSnapshot(fmt.Sprint(i)))
		}
		r.guestWrite(10)
		disk, err := r.lab.Disk("web01", 0)
		want := readContent(t, disk, err)
		kept := map[int][]byte{}
		for i := range refs {
			at, err := r.lab.DiskAt("web01", 0, fmt.Sprint(i))
			kept[i] = readContent(t, at, err)
		}
		for _, i := range order {
			if err := r.removeSnapshot(refs[i]); err != nil {
				t.Fatal(err)
			}
			delete(kept, i)
			for j, frozen := range kept {
				if at, err := r.lab.DiskAt("web01", 0, fmt.Sprint(j)); !bytes.Equal(readContent(t, at, err), frozen) {
					t.Errorf("%v: the removal of %d changed snapshot %d", order, i, j)
				}
			}
			if !bytes.Equal(readContent(t, disk, nil), want) {
				t.Errorf("%v: the removal of %d changed the disk", order, i)
			}
		}
		if files := r.diskFiles("web01"); len(files) != 2 {
			t.Errorf("%v: remaining files %v", order, files)
		}
		if after := r.folderNames(); !slices.Equal(after, before) {
			t.Errorf("%v: files %v in the folder, want %v", order, after, before)
		}
	}
}

// If two clients remove a snapshot at once, the second gets TaskInProgress or
// ManagedObjectNotFound.
func TestSnapshotIsRemovedOnce(t *testing.T) {
	r := newTestVM(t, Config{VMs: []VM{writingVM()}})
	for range 20 {
		ref := r.createSnapshot("s")
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- r.removeSnapshot(ref) }()
		}
		done := 0
		for range 2 {
			var gone *types.ManagedObjectNotFound
			err := <-errs
			if _, ok := fault.As(err, &gone); err == nil {
				done++
			} else if !ok && !fault.Is(err, &types.TaskInProgress{}) {
				t.Errorf("removal: %v", err)
			}
		}
		if done != 1 || r.readVM().Snapshot != nil {
			t.Fatalf("removed %d times", done)
		}
	}
}

func TestSnapshotFaults(t *testing.T) {
	r := newTestVM(t, Config{VMs: []VM{writingVM()}})
	add := func(kind FaultKind) {
		t.Helper()
		if _, err := r.lab.Faults().Add(Fault{Kind: kind, Count: 1, Path: "web01"}); err != nil {
			t.Fatal(err)
		}
	}
	add(FaultSnapshotCreate)
	task, err := r.vm.CreateSnapshot(t.Context(), "s", "", false, false)
	if err == nil {
		err = task.Wait(t.Context())
	}
	if !fault.Is(err, &types.GenericVmConfigFault{}) || r.readVM().Snapshot != nil {
		t.Errorf("creation: %v", err)
	}
	add(FaultVMBusy)
	if _, err := r.vm.CreateSnapshot(t.Context(), "s", "", false, false); !fault.Is(err, &types.TaskInProgress{}) {
		t.Errorf("creation while the VM is busy: %v", err)
	}
	s1 := r.createSnapshot("s1")
	_, id := r.frozenDisk(s1, 0)
	r.guestWrite(10)
	add(FaultVMBusy)
	if err := r.removeSnapshot(s1); !fault.Is(err, &types.TaskInProgress{}) || r.readVM().Snapshot == nil {
		t.Errorf("removal while the VM is busy: %v", err)
	}
	add(FaultVMBusy)
	if err := r.vm.ShutdownGuest(t.Context()); !fault.Is(err, &types.TaskInProgress{}) {
		t.Errorf("shutdown while the VM is busy: %v", err)
	}
	add(FaultSnapshotRemove)
	if err := r.removeSnapshot(s1); !fault.Is(err, &types.GenericVmConfigFault{}) || r.readVM().Snapshot == nil {
		t.Errorf("removal: %v", err)
	}
	add(FaultSnapshotConsolidate)
	if err := r.removeSnapshot(s1); err != nil {
		t.Fatal(err)
	}
	vm := r.readVM()
	if file, _ := backingOf(t, vm.Config.Hardware.Device, 0); vm.Snapshot != nil || !vm.Runtime.ConsolidationNeeded || !strings.Contains(file, "-000001") {
		t.Errorf("after a removal without consolidation: %v, the VM writes to %s", vm.Runtime.ConsolidationNeeded, file)
	}
	disk, err := r.lab.Disk("web01", 0)
	want := readContent(t, disk, err)
	res, err := methods.ConsolidateVMDisks_Task(t.Context(), r.c, &types.ConsolidateVMDisks_Task{This: vm.Self})
	if err == nil {
		err = object.NewTask(r.c, res.Returnval).Wait(t.Context())
	}
	vm = r.readVM()
	if file, _ := backingOf(t, vm.Config.Hardware.Device, 0); err != nil || vm.Runtime.ConsolidationNeeded || file != nfcPath || !bytes.Equal(readContent(t, disk, nil), want) {
		t.Errorf("consolidation: %v, needed %v, the VM writes to %s", err, vm.Runtime.ConsolidationNeeded, file)
	}
	s2 := r.createSnapshot("s2")
	add(FaultCBTFail)
	if _, err := r.changedAreas(0, id, &s2); !fault.Is(err, &types.FileFault{}) {
		t.Errorf("query: %v", err)
	}
	whole, err := r.changedAreas(0, id, &s2)
	add(FaultCBTLose)
	if less, err2 := r.changedAreas(0, id, &s2); err != nil || err2 != nil || len(less) >= len(whole) {
		t.Errorf("%d areas, want fewer than %d: %v %v", len(less), len(whole), err, err2)
	}
}

func TestTrackingTakesEffectAtAStun(t *testing.T) {
	vm := writingVM()
	vm.ChangeTracking = false
	r := newTestVM(t, Config{VMs: []VM{vm}})
	old := r.createSnapshot("before")
	if err := r.removeSnapshot(old); err != nil {
		t.Fatal(err)
	}
	r.setTracking(true)
	if _, id := backingOf(t, r.readVM().Config.Hardware.Device, 0); id != "" {
		t.Errorf("id %q before the disk was reopened", id)
	}
	s1 := r.createSnapshot("s1")
	_, id := r.frozenDisk(s1, 0)
	if id == "" {
		t.Fatal("no id after the first snapshot")
	}
	r.guestWrite(20)
	s2 := r.createSnapshot("s2")
	if list, err := r.changedAreas(0, id, &s2); err != nil || len(list) == 0 {
		t.Errorf("changes %v %v", list, err)
	}
	// A snapshot cannot be compared with a later one.
	if _, later := r.frozenDisk(s2, 0); true {
		if _, err := r.changedAreas(0, later, &s1); !fault.Is(err, &types.FileFault{}) {
			t.Errorf("compared with a later snapshot: %v", err)
		}
	}
	if err := r.lab.ResetCBT("web01"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.changedAreas(0, id, &s2); !fault.Is(err, &types.FileFault{}) {
		t.Errorf("after a reset: %v", err)
	}
}

// The lab imitates known defects of change tracking: changes are missing without an error.
func TestTrackingDefects(t *testing.T) {
	missing := func(r *testVM, id string, snapshot types.ManagedObjectReference, since []byte) bool {
		at, err := r.lab.DiskAt("web01", 0, "s2")
		want := readContent(r.t, at, err)
		image := append(bytes.Clone(since), make([]byte, len(want)-len(since))...)
		list, err := r.changedAreas(0, id, &snapshot)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, a := range list {
			copy(image[a.Start:a.Start+a.Length], want[a.Start:])
		}
		return !bytes.Equal(image, want)
	}
	vm := writingVM()
	vm.ChangeTracking = false
	r := newTestVM(t, Config{VMs: []VM{vm}})
	r.createSnapshot("in the way")
	r.setTracking(true)
	s1 := r.createSnapshot("s1")
	_, id := r.frozenDisk(s1, 0)
	at, err := r.lab.DiskAt("web01", 0, "s1")
	since := readContent(t, at, err)
	r.guestWrite(50)
	if s2 := r.createSnapshot("s2"); id == "" || !missing(r, id, s2, since) {
		t.Errorf("enabled with a snapshot present, id %q: no changes are missing", id)
	}

	r = newTestVM(t, Config{VMs: []VM{writingVM()}})
	s1 = r.createSnapshot("s1")
	_, id = r.frozenDisk(s1, 0)
	at, err = r.lab.DiskAt("web01", 0, "s1")
	since = readContent(t, at, err)
	if err := r.lab.GrowDisk("web01", 0, 64<<20); err == nil {
		t.Error("a disk with a snapshot grew")
	}
	if err := r.removeSnapshot(s1); err != nil {
		t.Fatal(err)
	}
	if err := r.lab.GrowDisk("web01", 0, 64<<20); err != nil {
		t.Fatal(err)
	}
	if got := diskOf(t, r.readVM(), 0).CapacityInBytes; got != 64<<20 {
		t.Errorf("capacity %d", got)
	}
	r.guestWrite(50)
	s2 := r.createSnapshot("s2")
	if !missing(r, id, s2, since) {
		t.Error("since a snapshot before the growth: no changes are missing")
	}
	_, id = r.frozenDisk(s2, 0)
	at, err = r.lab.DiskAt("web01", 0, "s2")
	since = readContent(t, at, err)
	r.guestWrite(50)
	if s3 := r.createSnapshot("s3"); missing(r, id, s3, since) {
		t.Error("since a snapshot after the growth: changes are missing")
	}
}

// If GrowthFails is set, queries since a snapshot before a growth of the disk fail. Queries since
// a later snapshot succeed.
func TestChangesAcrossGrowth(t *testing.T) {
	for _, fails := range []bool{false, true} {
		r := newTestVM(t, Config{VMs: []VM{writingVM()}, CBT: CBT{GrowthFails: fails}})
		var ids []string
		for i := range int64(3) {
			s := r.createSnapshot(fmt.Sprintf("s%d", i))
			_, id := r.frozenDisk(s, 0)
			if d := r.sizeAt(s, 0); d != 16<<20+i<<20 {
				t.Errorf("snapshot %d has a disk of %d bytes", i, d)
			}
			ids = append(ids, id)
			r.guestWrite(30)
			if err := r.removeSnapshot(s); err != nil {
				t.Fatal(err)
			}
			if err := r.lab.GrowDisk("web01", 0, 17<<20+i<<20); err != nil {
				t.Fatal(err)
			}
		}
		last := r.createSnapshot("last")
		for i, id := range ids {
			if _, err := r.changedAreas(0, id, &last); (err != nil) != fails {
				t.Errorf("since snapshot %d: %v", i, err)
			}
		}
		_, id := r.frozenDisk(last, 0)
		r.guestWrite(30)
		later := r.createSnapshot("later")
		if _, err := r.changedAreas(0, id, &later); err != nil {
			t.Errorf("since the last growth: %v", err)
		}
	}
}

// sizeAt returns the capacity of a disk in a snapshot's configuration.
func (r *testVM) sizeAt(ref types.ManagedObjectReference, disk int) int64 {
	r.t.Helper()
	var s mo.VirtualMachineSnapshot
	if err := r.vm.Properties(context.Background(), ref, []string{"config"}, &s); err != nil {
		r.t.Fatal(err)
	}
	disks := object.VirtualDeviceList(s.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil))
	return disks[disk].(*types.VirtualDisk).CapacityInBytes
}

// The writes of a guest depend only on its seed.
func TestGuestWritesAreDeterministic(t *testing.T) {
	sum := func(seed uint64) [32]byte {
		vm := writingVM()
		vm.Guest.Writes.Seed = seed
		r := newTestVM(t, Config{VMs: []VM{vm}})
		r.guestWrite(30)
		if err := r.lab.SetPower("web01", false); err != nil {
			t.Fatal(err)
		}
		if err := r.lab.GuestWrites("web01", 1); err == nil {
			t.Error("a powered-off guest wrote")
		}
		disk, err := r.lab.Disk("web01", 0)
		return sha256.Sum256(readContent(t, disk, err))
	}
	if one, again, other := sum(1), sum(1), sum(2); one != again || one == other {
		t.Errorf("%x %x %x", one, again, other)
	}
}

// The control API and the Go API cause the same writes of a guest.
func TestGuestWritesWithTheControlAPI(t *testing.T) {
	sum := func(write func(r *testVM)) [32]byte {
		r := newTestVM(t, Config{VMs: []VM{writingVM()}})
		write(r)
		if err := r.lab.SetPower("web01", false); err != nil {
			t.Fatal(err)
		}
		disk, err := r.lab.Disk("web01", 0)
		return sha256.Sum256(readContent(t, disk, err))
	}
	post := func(r *testVM) {
		if got := callControl(t, r.lab, "POST", "/writes/web01", `{"count": 5}`, nil); got != http.StatusOK {
			t.Errorf("status %d", got)
		}
		if got := callControl(t, r.lab, "POST", "/writes/nobody", `{"count": 5}`, nil); got != http.StatusBadRequest {
			t.Errorf("an unknown VM: status %d", got)
		}
	}
	if byControl, byGo, none := sum(post), sum(func(r *testVM) { r.guestWrite(5) }), sum(func(*testVM) {}); byControl != byGo || byControl == none {
		t.Errorf("%x with the control API, %x with the Go API, %x without writes", byControl, byGo, none)
	}
}

// A guest with a write rate continues to write during snapshots, and stops at power-off.
func TestGuestWriteRate(t *testing.T) {
	vm := writingVM()
	vm.Guest.Writes.Rate = 20 << 20
	r := newTestVM(t, Config{VMs: []VM{vm}})
	s1 := r.createSnapshot("s1")
	_, id := r.frozenDisk(s1, 0)
	disk, err := r.lab.Disk("web01", 0)
	first := readContent(t, disk, err)
	waitFor(t, "a write of the guest", func() bool { return !bytes.Equal(readContent(t, disk, nil), first) })
	s2 := r.createSnapshot("s2")
	at, err := r.lab.DiskAt("web01", 0, "s1")
	r.applyChanges(readContent(t, at, err), 0, id, &s2, frozenAt(t, r.lab, "s2"), nil)
	if err := r.lab.SetPower("web01", false); err != nil {
		t.Fatal(err)
	}
	last := readContent(t, disk, nil)
	time.Sleep(20 * guestTick)
	if !bytes.Equal(readContent(t, disk, nil), last) {
		t.Error("a powered-off VM still writes")
	}
}

func frozenAt(t *testing.T, l *Lab, snapshot string) DiskContent {
	t.Helper()
	at, err := l.DiskAt("web01", 0, snapshot)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// WriteDisk writes whole pages above a snapshot, and a read of part of a page returns the data.
func TestWriteDisk(t *testing.T) {
	r := newTestVM(t, Config{VMs: []VM{writingVM()}})
	text := bytes.Repeat([]byte("written "), 1024)
	r.createSnapshot("s1")
	if err := r.lab.WriteDisk("web01", 1, text, 4<<20); err != nil {
		t.Fatal(err)
	}
	disk, err := r.lab.Disk("web01", 1)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1000)
	if _, err := disk.ReadAt(got, 4<<20+3001); err != nil || !bytes.Equal(got, text[3001:4001]) {
		t.Errorf("%.20q %v", got, err)
	}
	if err := r.lab.WriteDisk("web01", 1, text[:100], 0); err == nil {
		t.Error("part of a page was written")
	}
}
