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

// writingVM runs and has two disks whose changes are tracked.
func writingVM() VM {
	return VM{
		Name: "web01", PoweredOn: true, ChangeTracking: true, Guest: Guest{Writes: Writes{Seed: 7, Spread: 40, AtStop: 5}},
		Disks: []Disk{{Capacity: 16 << 20, Fill: 30, Seed: 1}, {Capacity: 8<<20 + 512, Fill: 10, Seed: 2}},
	}
}

// rig is a lab with one VM and a client of its API.
type rig struct {
	t   *testing.T
	lab *Lab
	c   *vim25.Client
	vm  *object.VirtualMachine
}

func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	l := start(t, cfg)
	c := login(t, l).Client
	return &rig{t, l, c, object.NewVirtualMachine(c, allVMs(t, c)[cfg.VMs[0].Name].Self)}
}

// snapshot takes one and returns its reference.
func (r *rig) snapshot(name string) types.ManagedObjectReference {
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

func (r *rig) remove(ref types.ManagedObjectReference) error {
	res, err := methods.RemoveSnapshot_Task(context.Background(), r.c, &types.RemoveSnapshot_Task{This: ref})
	if err != nil {
		return err
	}
	return object.NewTask(r.c, res.Returnval).Wait(context.Background())
}

func (r *rig) setTracking(on bool) {
	r.t.Helper()
	task, err := r.vm.Reconfigure(context.Background(), types.VirtualMachineConfigSpec{ChangeTrackingEnabled: &on})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := task.Wait(context.Background()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) write(n int) {
	r.t.Helper()
	if err := r.lab.GuestWrites("web01", n); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) now() mo.VirtualMachine { r.t.Helper(); return allVMs(r.t, r.c)["web01"] }

// frozen is the file and the change id of a disk as a snapshot's config shows them.
func (r *rig) frozen(ref types.ManagedObjectReference, disk int) (file, id string) {
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

// changed lists every changed area of a disk, over all pages.
func (r *rig) changed(disk int, id string, snapshot *types.ManagedObjectReference) (list []types.DiskChangeExtent, err error) {
	r.t.Helper()
	content, _ := r.lab.Disk("web01", disk)
	vm := r.now()
	for off := int64(0); off < content.Size; {
		page, err := query(r.c, vm, content.Key, off, id, snapshot)
		if err != nil {
			return nil, err
		}
		list = append(list, page.ChangedArea...)
		off += page.Length
	}
	return list, nil
}

func all(t *testing.T, c DiskContent, err error) []byte {
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
	r := newRig(t, Config{VMs: []VM{writingVM()}})
	r.write(20)
	disk, err := r.lab.Disk("web01", 0)
	before := all(t, disk, err)
	s1 := r.snapshot("s1")
	if file, id := r.frozen(s1, 0); file != nfcPath || id == "" {
		t.Errorf("frozen is %s with id %q", file, id)
	}
	vm := r.now()
	if file, _ := backingOf(t, vm.Config.Hardware.Device, 0); file != "[datastore1] web01/web01-000001.vmdk" {
		t.Errorf("the VM writes to %s", file)
	}
	r.write(20)
	if after := all(t, disk, nil); bytes.Equal(after, before) {
		t.Error("the guest wrote nothing")
	}
	at, err := r.lab.DiskAt("web01", 0, "s1")
	if !bytes.Equal(all(t, at, err), before) {
		t.Error("what was frozen has changed")
	}
	// The frozen disk can be read over NFC, what the VM writes to cannot; /folder has neither.
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
	if got := status(t, client(t, r.lab), request(t, r.lab, "HEAD", folderURL(r.lab, flat))); got != 500 {
		t.Errorf("the frozen disk by /folder: %d", got)
	}
	// Once it is merged, nobody reads half of each.
	if err := r.remove(s1); err != nil {
		t.Fatal(err)
	}
	var refused *nfcError
	if _, err := f.readAt(0, 4096, 0); !errors.As(err, &refused) {
		t.Errorf("a disk merged under its reader: %v", err)
	}
	if file, _ := backingOf(t, r.now().Config.Hardware.Device, 0); file != nfcPath {
		t.Errorf("after the removal the VM writes to %s", file)
	}
}

// Rounds of a mover: copy what changed since the last snapshot, from the next one, and at
// last from the machine that was switched off. The image must be the disk.
func TestRoundsOfChangesGiveTheDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, kind := range []string{"VMFS", "NFS"} {
		for i, cbt := range []CBT{{}, {MaxAreas: 3, EmptyPages: true}, {Granularity: 256 << 10}} {
			if (kind == "NFS") != (i == 1) && !lane.Slow {
				continue
			}
			r := newRig(t, Config{CBT: cbt, Datastores: []Datastore{{Name: "datastore1", Type: kind}}, VMs: []VM{writingVM()}})
			r.write(10)
			last := r.snapshot("round 0")
			images, ids := make([][]byte, 2), make([]string, 2)
			for i := range images {
				at, err := r.lab.DiskAt("web01", i, "round 0")
				images[i] = all(t, at, err)
				_, ids[i] = r.frozen(last, i)
			}
			for round := 1; round <= 4; round++ {
				r.write(5)
				next := r.snapshot(fmt.Sprintf("round %d", round))
				r.write(3) // must not be in the round
				for i := range images {
					at, err := r.lab.DiskAt("web01", i, fmt.Sprintf("round %d", round))
					r.apply(images[i], i, ids[i], &next, at, err)
					_, ids[i] = r.frozen(next, i)
				}
				if err := r.remove(last); err != nil {
					t.Fatal(err)
				}
				last = next
			}
			if err := r.lab.SetPower("web01", false); err != nil {
				t.Fatal(err)
			}
			for i := range images {
				now, err := r.lab.Disk("web01", i)
				r.apply(images[i], i, ids[i], nil, now, err)
			}
			if err := r.remove(last); err != nil {
				t.Fatal(err)
			}
			for i := range images {
				now, err := r.lab.Disk("web01", i)
				if !bytes.Equal(images[i], all(t, now, err)) {
					t.Errorf("%s %+v: after the last snapshot is gone disk %d is another", kind, cbt, i)
				}
			}
		}
	}
}

// apply copies the changed areas and compares.
func (r *rig) apply(image []byte, disk int, id string, snapshot *types.ManagedObjectReference, at DiskContent, err error) {
	r.t.Helper()
	want := all(r.t, at, err)
	list, err := r.changed(disk, id, snapshot)
	if err != nil {
		r.t.Fatal(err)
	}
	var sum int64
	for _, a := range list {
		copy(image[a.Start:a.Start+a.Length], want[a.Start:])
		sum += a.Length
	}
	if !bytes.Equal(image, want) {
		r.t.Errorf("the changes since %s do not lead to disk %d", id, disk)
	}
	if sum == int64(len(image)) {
		r.t.Errorf("the whole of disk %d is said to have changed", disk)
	}
}

// Deltas are files that others can read: qemu's VMDK driver is the judge.
func TestDeltasAreRealFiles(t *testing.T) {
	qemu, err := exec.LookPath("qemu-img")
	if err != nil {
		t.Skip("qemu-img is not installed")
	}
	for _, kind := range []string{"VMFS", "NFS"} {
		vm := writingVM()
		vm.Guest.Writes.Spread, vm.Disks[0].Capacity = 100, 32<<20 // pages past the first table of either format
		r := newRig(t, Config{Datastores: []Datastore{{Name: "datastore1", Type: kind}}, VMs: []VM{vm}})
		for i := range 3 {
			r.write(20)
			r.snapshot(fmt.Sprint(i))
		}
		r.write(20)
		if err := r.lab.SetPower("web01", false); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"web01", "web01_1"} {
			dir := t.TempDir()
			for _, file := range r.listed(name) {
				_, data, err := fetch(t, client(t, r.lab), request(t, r.lab, "GET", folderURL(r.lab, "web01/"+file)))
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
			if !bytes.Equal(got, all(t, now, err)) {
				t.Errorf("%s: qemu-img reads another disk %d", kind, i)
			}
		}
	}
}

// listed are the files of one disk in the VM's folder.
func (r *rig) listed(stem string) (names []string) {
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
	var of []string
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, stem); ok && (rest[0] == '-' || rest == ".vmdk") && strings.HasSuffix(name, ".vmdk") && !strings.Contains(name, "ctk") {
			of = append(of, name)
		}
	}
	return of
}

// inFolder are the VM's files other than what disks consist of.
func (r *rig) inFolder() (names []string) {
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
		r := newRig(t, Config{VMs: []VM{writingVM()}})
		before := r.inFolder()
		var refs []types.ManagedObjectReference
		for i := range 3 {
			r.write(10)
			refs = append(refs, r.snapshot(fmt.Sprint(i)))
		}
		r.write(10)
		disk, err := r.lab.Disk("web01", 0)
		want := all(t, disk, err)
		kept := map[int][]byte{}
		for i := range refs {
			at, err := r.lab.DiskAt("web01", 0, fmt.Sprint(i))
			kept[i] = all(t, at, err)
		}
		for _, i := range order {
			if err := r.remove(refs[i]); err != nil {
				t.Fatal(err)
			}
			delete(kept, i)
			for j, frozen := range kept {
				if at, err := r.lab.DiskAt("web01", 0, fmt.Sprint(j)); !bytes.Equal(all(t, at, err), frozen) {
					t.Errorf("%v: without %d, %d is another", order, i, j)
				}
			}
			if !bytes.Equal(all(t, disk, nil), want) {
				t.Errorf("%v: without %d the disk is another", order, i)
			}
		}
		if files := r.listed("web01"); len(files) != 2 {
			t.Errorf("%v: left %v", order, files)
		}
		if after := r.inFolder(); !slices.Equal(after, before) {
			t.Errorf("%v: the folder has %v, and had %v", order, after, before)
		}
	}
}

// Of two that remove one snapshot at once the second hears that the VM is busy, or that there is
// none any more.
func TestSnapshotIsRemovedOnce(t *testing.T) {
	r := newRig(t, Config{VMs: []VM{writingVM()}})
	for range 20 {
		ref := r.snapshot("s")
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- r.remove(ref) }()
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
		if done != 1 || r.now().Snapshot != nil {
			t.Fatalf("removed %d times", done)
		}
	}
}

func TestSnapshotFaults(t *testing.T) {
	r := newRig(t, Config{VMs: []VM{writingVM()}})
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
	if !fault.Is(err, &types.GenericVmConfigFault{}) || r.now().Snapshot != nil {
		t.Errorf("creation: %v", err)
	}
	add(FaultVMBusy)
	if _, err := r.vm.CreateSnapshot(t.Context(), "s", "", false, false); !fault.Is(err, &types.TaskInProgress{}) {
		t.Errorf("creation while it is busy: %v", err)
	}
	s1 := r.snapshot("s1")
	_, id := r.frozen(s1, 0)
	r.write(10)
	add(FaultVMBusy)
	if err := r.remove(s1); !fault.Is(err, &types.TaskInProgress{}) || r.now().Snapshot == nil {
		t.Errorf("removal while it is busy: %v", err)
	}
	add(FaultVMBusy)
	if err := r.vm.ShutdownGuest(t.Context()); !fault.Is(err, &types.TaskInProgress{}) {
		t.Errorf("shutdown while it is busy: %v", err)
	}
	add(FaultSnapshotRemove)
	if err := r.remove(s1); !fault.Is(err, &types.GenericVmConfigFault{}) || r.now().Snapshot == nil {
		t.Errorf("removal: %v", err)
	}
	add(FaultSnapshotConsolidate)
	if err := r.remove(s1); err != nil {
		t.Fatal(err)
	}
	vm := r.now()
	if file, _ := backingOf(t, vm.Config.Hardware.Device, 0); vm.Snapshot != nil || !vm.Runtime.ConsolidationNeeded || !strings.Contains(file, "-000001") {
		t.Errorf("after a removal without consolidation: %v, the VM writes to %s", vm.Runtime.ConsolidationNeeded, file)
	}
	disk, err := r.lab.Disk("web01", 0)
	want := all(t, disk, err)
	res, err := methods.ConsolidateVMDisks_Task(t.Context(), r.c, &types.ConsolidateVMDisks_Task{This: vm.Self})
	if err == nil {
		err = object.NewTask(r.c, res.Returnval).Wait(t.Context())
	}
	vm = r.now()
	if file, _ := backingOf(t, vm.Config.Hardware.Device, 0); err != nil || vm.Runtime.ConsolidationNeeded || file != nfcPath || !bytes.Equal(all(t, disk, nil), want) {
		t.Errorf("consolidation: %v, needed %v, the VM writes to %s", err, vm.Runtime.ConsolidationNeeded, file)
	}
	s2 := r.snapshot("s2")
	add(FaultCBTFail)
	if _, err := r.changed(0, id, &s2); !fault.Is(err, &types.FileFault{}) {
		t.Errorf("query: %v", err)
	}
	whole, err := r.changed(0, id, &s2)
	add(FaultCBTLose)
	if less, err2 := r.changed(0, id, &s2); err != nil || err2 != nil || len(less) >= len(whole) {
		t.Errorf("%d areas of %d: %v %v", len(less), len(whole), err, err2)
	}
}

func TestTrackingTakesEffectAtAStun(t *testing.T) {
	vm := writingVM()
	vm.ChangeTracking = false
	r := newRig(t, Config{VMs: []VM{vm}})
	old := r.snapshot("before")
	if err := r.remove(old); err != nil {
		t.Fatal(err)
	}
	r.setTracking(true)
	if _, id := backingOf(t, r.now().Config.Hardware.Device, 0); id != "" {
		t.Errorf("id %q before anything made the disk open again", id)
	}
	s1 := r.snapshot("s1")
	_, id := r.frozen(s1, 0)
	if id == "" {
		t.Fatal("no id after the first snapshot")
	}
	r.write(20)
	s2 := r.snapshot("s2")
	if list, err := r.changed(0, id, &s2); err != nil || len(list) == 0 {
		t.Errorf("changes %v %v", list, err)
	}
	// A snapshot cannot be compared with a later one.
	if _, later := r.frozen(s2, 0); true {
		if _, err := r.changed(0, later, &s1); !fault.Is(err, &types.FileFault{}) {
			t.Errorf("backwards: %v", err)
		}
	}
	if err := r.lab.ResetCBT("web01"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.changed(0, id, &s2); !fault.Is(err, &types.FileFault{}) {
		t.Errorf("after a reset: %v", err)
	}
}

// Known corruptions: nothing says so, and changes are missing.
func TestTrackingThatIsWrong(t *testing.T) {
	missing := func(r *rig, id string, snapshot types.ManagedObjectReference, since []byte) bool {
		at, err := r.lab.DiskAt("web01", 0, "s2")
		want := all(r.t, at, err)
		image := append(bytes.Clone(since), make([]byte, len(want)-len(since))...)
		list, err := r.changed(0, id, &snapshot)
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
	r := newRig(t, Config{VMs: []VM{vm}})
	r.snapshot("in the way")
	r.setTracking(true)
	s1 := r.snapshot("s1")
	_, id := r.frozen(s1, 0)
	at, err := r.lab.DiskAt("web01", 0, "s1")
	since := all(t, at, err)
	r.write(50)
	if s2 := r.snapshot("s2"); id == "" || !missing(r, id, s2, since) {
		t.Errorf("enabled with a snapshot present, id %q: the answer is right", id)
	}

	r = newRig(t, Config{VMs: []VM{writingVM()}})
	s1 = r.snapshot("s1")
	_, id = r.frozen(s1, 0)
	at, err = r.lab.DiskAt("web01", 0, "s1")
	since = all(t, at, err)
	if err := r.lab.GrowDisk("web01", 0, 64<<20); err == nil {
		t.Error("a disk with a snapshot grew")
	}
	if err := r.remove(s1); err != nil {
		t.Fatal(err)
	}
	if err := r.lab.GrowDisk("web01", 0, 64<<20); err != nil {
		t.Fatal(err)
	}
	if got := diskOf(t, r.now(), 0).CapacityInBytes; got != 64<<20 {
		t.Errorf("capacity %d", got)
	}
	r.write(50)
	s2 := r.snapshot("s2")
	if !missing(r, id, s2, since) {
		t.Error("grown since: the answer is right")
	}
	_, id = r.frozen(s2, 0)
	at, err = r.lab.DiskAt("web01", 0, "s2")
	since = all(t, at, err)
	r.write(50)
	if s3 := r.snapshot("s3"); missing(r, id, s3, since) {
		t.Error("asked since a moment after it grew, changes are missing")
	}
}

// What changed across two growths is not told right for either of them; where the host refuses
// such questions it answers those of later moments.
func TestQuestionsAcrossGrowth(t *testing.T) {
	for _, fails := range []bool{false, true} {
		r := newRig(t, Config{VMs: []VM{writingVM()}, CBT: CBT{GrowthFails: fails}})
		var ids []string
		for i := range int64(3) {
			s := r.snapshot(fmt.Sprintf("s%d", i))
			_, id := r.frozen(s, 0)
			if d := r.sizeAt(s, 0); d != 16<<20+i<<20 {
				t.Errorf("at snapshot %d it has %d bytes", i, d)
			}
			ids = append(ids, id)
			r.write(30)
			if err := r.remove(s); err != nil {
				t.Fatal(err)
			}
			if err := r.lab.GrowDisk("web01", 0, 17<<20+i<<20); err != nil {
				t.Fatal(err)
			}
		}
		last := r.snapshot("last")
		for i, id := range ids {
			if _, err := r.changed(0, id, &last); (err != nil) != fails {
				t.Errorf("since snapshot %d: %v", i, err)
			}
		}
		_, id := r.frozen(last, 0)
		r.write(30)
		later := r.snapshot("later")
		if _, err := r.changed(0, id, &later); err != nil {
			t.Errorf("since it does not grow any more: %v", err)
		}
	}
}

// sizeAt is what a snapshot's config says of a disk.
func (r *rig) sizeAt(ref types.ManagedObjectReference, disk int) int64 {
	r.t.Helper()
	var s mo.VirtualMachineSnapshot
	if err := r.vm.Properties(context.Background(), ref, []string{"config"}, &s); err != nil {
		r.t.Fatal(err)
	}
	disks := object.VirtualDeviceList(s.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil))
	return disks[disk].(*types.VirtualDisk).CapacityInBytes
}

// The same seed writes the same, and other seeds do not.
func TestGuestWritesAreDeterministic(t *testing.T) {
	sum := func(seed uint64) [32]byte {
		vm := writingVM()
		vm.Guest.Writes.Seed = seed
		r := newRig(t, Config{VMs: []VM{vm}})
		r.write(30)
		if err := r.lab.SetPower("web01", false); err != nil {
			t.Fatal(err)
		}
		if err := r.lab.GuestWrites("web01", 1); err == nil {
			t.Error("a guest wrote that is switched off")
		}
		disk, err := r.lab.Disk("web01", 0)
		return sha256.Sum256(all(t, disk, err))
	}
	if one, again, other := sum(1), sum(1), sum(2); one != again || one == other {
		t.Errorf("%x %x %x", one, again, other)
	}
}

// The control API lets a guest write what Go would.
func TestControlLetsGuestsWrite(t *testing.T) {
	sum := func(write func(r *rig)) [32]byte {
		r := newRig(t, Config{VMs: []VM{writingVM()}})
		write(r)
		if err := r.lab.SetPower("web01", false); err != nil {
			t.Fatal(err)
		}
		disk, err := r.lab.Disk("web01", 0)
		return sha256.Sum256(all(t, disk, err))
	}
	post := func(r *rig) {
		if got := ask(t, r.lab, "POST", "/writes/web01", `{"count": 5}`, nil); got != http.StatusOK {
			t.Errorf("status %d", got)
		}
		if got := ask(t, r.lab, "POST", "/writes/nobody", `{"count": 5}`, nil); got != http.StatusBadRequest {
			t.Errorf("a VM that is not there: status %d", got)
		}
	}
	if byControl, byGo, none := sum(post), sum(func(r *rig) { r.write(5) }), sum(func(*rig) {}); byControl != byGo || byControl == none {
		t.Errorf("%x by the control API, %x by Go, %x without", byControl, byGo, none)
	}
}

// A guest that writes by the clock goes on through snapshots and stops with its machine.
func TestGuestWritesByTheClock(t *testing.T) {
	vm := writingVM()
	vm.Guest.Writes.Rate = 20 << 20
	r := newRig(t, Config{VMs: []VM{vm}})
	s1 := r.snapshot("s1")
	_, id := r.frozen(s1, 0)
	disk, err := r.lab.Disk("web01", 0)
	first := all(t, disk, err)
	for range 3000 {
		if !bytes.Equal(all(t, disk, nil), first) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	s2 := r.snapshot("s2")
	at, err := r.lab.DiskAt("web01", 0, "s1")
	r.apply(all(t, at, err), 0, id, &s2, frozenAt(t, r.lab, "s2"), nil)
	if err := r.lab.SetPower("web01", false); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(all(t, disk, nil), all(t, disk, nil)) {
		t.Error("a machine that is off goes on writing")
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

// What a test writes itself is there, in part of a page too, whatever lies under it.
func TestWriteDisk(t *testing.T) {
	r := newRig(t, Config{VMs: []VM{writingVM()}})
	text := bytes.Repeat([]byte("written "), 1024)
	r.snapshot("s1")
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
