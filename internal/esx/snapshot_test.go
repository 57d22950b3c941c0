package esx_test

import (
	"bytes"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

// runningVM has a disk that snapshots freeze, and one that they leave out.
var runningVM = lab.Config{VMs: []lab.VM{{
	Name: "web01", PoweredOn: true,
	Disks: []lab.Disk{{Capacity: 1 << 20, Fill: 90, Seed: 1}, {Capacity: 1 << 20, Seed: 2, Mode: "independent_persistent"}},
}}}

func TestSnapshotComesAndGoes(t *testing.T) {
	for _, quiesce := range []bool{false, true} {
		b := startLab(t, runningVM)
		b.clock.auto = true
		s := b.dial(t)
		vm := theVM(t, s)
		if _, found, err := s.FindSnapshot(t.Context(), vm.Ref, "decamp web01-1"); found || err != nil {
			t.Fatalf("found before it was taken: %v, %v", found, err)
		}
		o := esx.SnapshotSpec{Name: "decamp web01-1", Description: "taken by decamp", Quiesce: quiesce}
		ref, err := s.CreateSnapshot(t.Context(), vm.Ref, o)
		if err != nil {
			t.Fatal(err)
		}
		// A decamp that was killed while it asked finds it by its name.
		if again, found, err := b.dial(t).FindSnapshot(t.Context(), vm.Ref, o.Name); again != ref || !found || err != nil {
			t.Errorf("found again: %s, %v, %v; want %s", again, found, err, ref)
		}
		if _, err := s.CreateSnapshot(t.Context(), vm.Ref, o); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("taken twice: %v", err)
		}
		if p, err := s.SnapshotDisk(t.Context(), ref, vm.Disks[0].Key); err != nil || p != vm.Disks[0].Base {
			t.Errorf("the disk at the snapshot is %v, %v; want %v", p, err, vm.Disks[0].Base)
		}
		for _, key := range []int32{vm.Disks[1].Key, 4711} {
			if _, err := s.SnapshotDisk(t.Context(), ref, key); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
				t.Errorf("disk %d at the snapshot: %v", key, err)
			}
		}
		for range 2 { // the second time nothing is there
			if err := s.RemoveSnapshot(t.Context(), vm.Ref, ref, nil); err != nil {
				t.Errorf("removed: %v", err)
			}
		}
		if now := theVM(t, s); now.Snapshots != 0 {
			t.Errorf("%d snapshots are left", now.Snapshots)
		}
	}
}

func theVM(t *testing.T, s *esx.Session) *inventory.VM {
	t.Helper()
	vm, err := s.VM(t.Context(), "web01")
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// A chain: each snapshot has the layer that was written to until it was taken.
func TestDisksOfAChain(t *testing.T) {
	cfg := runningVM
	cfg.VMs = []lab.VM{{Name: "web01", PoweredOn: true, Snapshots: []string{"one", "two"}, Disks: []lab.Disk{{Capacity: 1 << 20}}}}
	s := startLab(t, cfg).dial(t)
	vm := theVM(t, s)
	for name, want := range map[string]string{"one": "web01/web01.vmdk", "two": "web01/web01-000001.vmdk"} {
		ref, found, err := s.FindSnapshot(t.Context(), vm.Ref, name)
		if !found || err != nil {
			t.Fatalf("%s: found %v, %v", name, found, err)
		}
		if d, err := s.DiskAtSnapshot(t.Context(), ref, vm.Disks[0].Key); err != nil || d.Path.File != want || d.Key != vm.Disks[0].Key || d.Capacity != vm.Disks[0].Capacity {
			t.Errorf("frozen disk %+v, error %v", d, err)
		}
		if p, err := s.SnapshotDisk(t.Context(), ref, vm.Disks[0].Key); err != nil || p.File != want {
			t.Errorf("%s: %v, %v; want %s", name, p, err, want)
		}
	}
}

// What is asked of the host, and what it may say.
func TestSnapshotIsAskedForAsWanted(t *testing.T) {
	for _, tc := range []struct {
		name    string
		quiesce bool
		fault   string // the host's answer; empty: it does it
		kind    fault.Kind
	}{
		{name: "plain"},
		{name: "quiesced", quiesce: true},
		{name: "not to be quiesced", quiesce: true, fault: "FilesystemQuiesceFault", kind: fault.Conflict},
		{name: "too many", fault: "TooManySnapshotLevels", kind: fault.Conflict},
		{name: "shared disks", fault: "MultiWriterNotSupported", kind: fault.Unsupported},
		{name: "free licence", fault: "RestrictedVersion", kind: fault.Unsupported},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newESX(t)
			r.clock.auto = true
			var asked atomic.Value
			r.set(func(r *rig) {
				r.answer = func(c call, w http.ResponseWriter) bool {
					if c.method != "CreateSnapshot_Task" {
						return false
					}
					asked.Store(string(c.body))
					return tc.fault != "" && soapFault(w, tc.fault, "")
				}
			})
			s := r.dial(t)
			vm := r.model.Map().Any("VirtualMachine").(*simulator.VirtualMachine)
			_, err := s.CreateSnapshot(t.Context(), inventory.MoRef(vm.Self.Value), esx.SnapshotSpec{Name: "decamp", Quiesce: tc.quiesce})
			if tc.fault == "" && err != nil || tc.fault != "" && (!fault.Is(err, tc.kind) || fault.HintOf(err) == "") {
				t.Errorf("%v (remedy: %s)", err, fault.HintOf(err))
			}
			body, _ := asked.Load().(string)
			want := "<quiesce>false</quiesce>"
			if tc.quiesce {
				want = "<quiesce>true</quiesce>"
			}
			if !strings.Contains(body, want) || !strings.Contains(body, "<memory>false</memory>") {
				t.Errorf("asked for %s", body)
			}
		})
	}
}

// A merge that failed leaves deltas without a snapshot; they are told of if they stay.
func TestWhatAMergeLeavesIsConsolidated(t *testing.T) {
	r := newESX(t)
	r.clock.auto = true
	var asked atomic.Bool
	r.set(func(r *rig) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			if c.method != "ConsolidateVMDisks_Task" {
				return false
			}
			asked.Store(true)
			return soapFault(w, "FileLocked", "")
		}
	})
	s := r.dial(t)
	vm := r.model.Map().Any("VirtualMachine").(*simulator.VirtualMachine)
	ref := inventory.MoRef(vm.Self.Value)
	snapshot, err := s.CreateSnapshot(t.Context(), ref, esx.SnapshotSpec{Name: "decamp"})
	if err != nil {
		t.Fatal(err)
	}
	vm.Runtime.ConsolidationNeeded = true
	if err := s.RemoveSnapshot(t.Context(), ref, snapshot, nil); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" || !asked.Load() {
		t.Errorf("%v, asked %v", err, asked.Load())
	}
	vm.Runtime.ConsolidationNeeded = false
	if err := s.RemoveSnapshot(t.Context(), ref, snapshot, nil); err != nil {
		t.Error(err)
	}
}

// working is a VM that the host has a task of under way, until it was looked for so often.
func working(t *testing.T, looks int, end func(*simulator.VirtualMachine)) (*rig, inventory.MoRef) {
	t.Helper()
	r := newESX(t)
	r.clock.auto = true
	vm := r.model.Map().Any("VirtualMachine").(*simulator.VirtualMachine)
	task := &simulator.Task{}
	task.Self = types.ManagedObjectReference{Type: "Task", Value: "haTask-1-vim.vm.Snapshot.remove-7"}
	task.Info.State, task.Info.Entity = types.TaskInfoStateRunning, &vm.Self
	r.model.Map().Put(task)
	gone := types.ManagedObjectReference{Type: "Task", Value: "haTask-1-vim.VirtualMachine.powerOn-1"}
	vm.RecentTask = []types.ManagedObjectReference{gone, task.Self}
	r.set(func(r *rig) {
		r.answer = func(c call, _ http.ResponseWriter) bool {
			if bytes.Contains(c.body, []byte("recentTask")) {
				if looks--; looks == 0 {
					task.Info.State = types.TaskInfoStateSuccess
					end(vm)
				}
			}
			return false
		}
	})
	return r, inventory.MoRef(vm.Self.Value)
}

func take(vm *simulator.VirtualMachine) {
	vm.Snapshot = &types.VirtualMachineSnapshotInfo{RootSnapshotList: []types.VirtualMachineSnapshotTree{{
		Name: "ours", Id: 7, Snapshot: types.ManagedObjectReference{Type: "VirtualMachineSnapshot", Value: "snapshot-7"},
	}}}
}

// What somebody else has the host do to snapshots is waited for while the host works on it,
// and no longer.
func TestSnapshotIsAwaited(t *testing.T) {
	for name, c := range map[string]struct {
		before, end func(*simulator.VirtualMachine)
		there, want bool
	}{
		"comes":       {end: take, there: true, want: true},
		"never comes": {end: func(*simulator.VirtualMachine) {}, there: true, want: false},
		"goes":        {before: take, end: func(vm *simulator.VirtualMachine) { vm.Snapshot = nil }, there: false, want: false},
		"stays":       {before: take, end: func(*simulator.VirtualMachine) {}, there: false, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			const looks = 3
			r, ref := working(t, looks, c.end)
			if c.before != nil {
				c.before(r.model.Map().Get(types.ManagedObjectReference{Type: "VirtualMachine", Value: string(ref)}).(*simulator.VirtualMachine))
			}
			s := r.dial(t)
			began := r.clock.Now()
			entry, is, err := s.AwaitSnapshot(t.Context(), ref, "ours", c.there, time.Minute)
			if err != nil || is != c.want || is && (entry.ID != 7 || entry.Ref != "snapshot-7") {
				t.Errorf("%+v, %v, %v; want %v", entry, is, err, c.want)
			}
			if took := r.clock.Now().Sub(began); took < (looks-1)*time.Minute || took > (looks+1)*time.Minute {
				t.Errorf("it was waited for %v, with a host that worked for %d minutes", took, looks)
			}
		})
	}
}

func TestSnapshotIsLookedForOnce(t *testing.T) {
	r, ref := working(t, -1, take)
	began := r.clock.Now()
	if _, is, err := r.dial(t).AwaitSnapshot(t.Context(), ref, "ours", true, 0); is || err != nil {
		t.Errorf("%v, %v", is, err)
	}
	if r.clock.Now() != began {
		t.Error("it was waited for")
	}
}
