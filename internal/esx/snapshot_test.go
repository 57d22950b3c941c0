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

// runningVM has a disk that snapshots include, and one that they exclude.
var runningVM = lab.Config{VMs: []lab.VM{{
	Name: "web01", PoweredOn: true,
	Disks: []lab.Disk{{Capacity: 1 << 20, Fill: 90, Seed: 1}, {Capacity: 1 << 20, Seed: 2, Mode: "independent_persistent"}},
}}}

func TestSnapshotIsCreatedAndRemoved(t *testing.T) {
	for _, quiesce := range []bool{false, true} {
		b := startLab(t, runningVM)
		b.clock.auto = true
		s := b.dial(t)
		vm := findWeb01(t, s)
		if _, found, err := s.FindSnapshot(t.Context(), vm.Ref, "decamp web01-1"); found || err != nil {
			t.Fatalf("found before it was created: %v, %v", found, err)
		}
		o := esx.SnapshotSpec{Name: "decamp web01-1", Description: "taken by decamp", Quiesce: quiesce}
		ref, err := s.CreateSnapshot(t.Context(), vm.Ref, o)
		if err != nil {
			t.Fatal(err)
		}
		// A decamp that was killed during the call finds the snapshot by its name.
		if again, found, err := b.dial(t).FindSnapshot(t.Context(), vm.Ref, o.Name); again != ref || !found || err != nil {
			t.Errorf("FindSnapshot: %s, %v, %v; want %s", again, found, err, ref)
		}
		if _, err := s.CreateSnapshot(t.Context(), vm.Ref, o); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("created twice: %v", err)
		}
		if p, err := s.SnapshotDisk(t.Context(), ref, vm.Disks[0].Key); err != nil || p != vm.Disks[0].Base {
			t.Errorf("the disk at the snapshot is %v, %v; want %v", p, err, vm.Disks[0].Base)
		}
		for _, key := range []int32{vm.Disks[1].Key, 4711} {
			if _, err := s.SnapshotDisk(t.Context(), ref, key); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
				t.Errorf("disk %d at the snapshot: %v", key, err)
			}
		}
		for range 2 { // the second call finds no snapshot
			if err := s.RemoveSnapshot(t.Context(), vm.Ref, ref, nil); err != nil {
				t.Errorf("RemoveSnapshot: %v", err)
			}
		}
		if now := findWeb01(t, s); now.Snapshots != 0 {
			t.Errorf("%d snapshots are left", now.Snapshots)
		}
	}
}

func findWeb01(t *testing.T, s *esx.Session) *inventory.VM {
	t.Helper()
	vm, err := s.VM(t.Context(), "web01")
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// In a chain, the disk of a snapshot is the layer that was written until its creation.
func TestDisksOfAChain(t *testing.T) {
	cfg := runningVM
	cfg.VMs = []lab.VM{{Name: "web01", PoweredOn: true, Snapshots: []string{"one", "two"}, Disks: []lab.Disk{{Capacity: 1 << 20}}}}
	s := startLab(t, cfg).dial(t)
	vm := findWeb01(t, s)
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

// CreateSnapshot sends the quiesce option and no memory, and returns the fault of the host with a remedy.
func TestCreateSnapshotRequest(t *testing.T) {
	for _, tc := range []struct {
		name    string
		quiesce bool
		fault   string // name of the host's fault; empty for success
		kind    fault.Kind
	}{
		{name: "plain"},
		{name: "quiesced", quiesce: true},
		{name: "quiescing fails", quiesce: true, fault: "FilesystemQuiesceFault", kind: fault.Conflict},
		{name: "too many", fault: "TooManySnapshotLevels", kind: fault.Conflict},
		{name: "shared disks", fault: "MultiWriterNotSupported", kind: fault.Unsupported},
		{name: "free licence", fault: "RestrictedVersion", kind: fault.Unsupported},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newESX(t)
			r.clock.auto = true
			var request atomic.Value
			r.set(func(r *simServer) {
				r.answer = func(c call, w http.ResponseWriter) bool {
					if c.method != "CreateSnapshot_Task" {
						return false
					}
					request.Store(string(c.body))
					return tc.fault != "" && soapFault(w, tc.fault, "")
				}
			})
			s := r.dial(t)
			vm := r.model.Map().Any("VirtualMachine").(*simulator.VirtualMachine)
			_, err := s.CreateSnapshot(t.Context(), inventory.MoRef(vm.Self.Value), esx.SnapshotSpec{Name: "decamp", Quiesce: tc.quiesce})
			if tc.fault == "" && err != nil || tc.fault != "" && (!fault.Is(err, tc.kind) || fault.HintOf(err) == "") {
				t.Errorf("%v (remedy: %s)", err, fault.HintOf(err))
			}
			body, _ := request.Load().(string)
			want := "<quiesce>false</quiesce>"
			if tc.quiesce {
				want = "<quiesce>true</quiesce>"
			}
			if !strings.Contains(body, want) || !strings.Contains(body, "<memory>false</memory>") {
				t.Errorf("the request is %s", body)
			}
		})
	}
}

// A failed merge leaves deltas without a snapshot. RemoveSnapshot consolidates them, and fails if that fails.
func TestDeltasAreConsolidated(t *testing.T) {
	r := newESX(t)
	r.clock.auto = true
	var consolidated atomic.Bool
	r.set(func(r *simServer) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			if c.method != "ConsolidateVMDisks_Task" {
				return false
			}
			consolidated.Store(true)
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
	if err := s.RemoveSnapshot(t.Context(), ref, snapshot, nil); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" || !consolidated.Load() {
		t.Errorf("%v, consolidated %v", err, consolidated.Load())
	}
	vm.Runtime.ConsolidationNeeded = false
	if err := s.RemoveSnapshot(t.Context(), ref, snapshot, nil); err != nil {
		t.Error(err)
	}
}

// newBusyVM returns a VM with a running task. The task ends, and end is called, at the given number of queries.
func newBusyVM(t *testing.T, queries int, end func(*simulator.VirtualMachine)) (*simServer, inventory.MoRef) {
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
	r.set(func(r *simServer) {
		r.answer = func(c call, _ http.ResponseWriter) bool {
			if bytes.Contains(c.body, []byte("recentTask")) {
				if queries--; queries == 0 {
					task.Info.State = types.TaskInfoStateSuccess
					end(vm)
				}
			}
			return false
		}
	})
	return r, inventory.MoRef(vm.Self.Value)
}

func addSnapshot(vm *simulator.VirtualMachine) {
	vm.Snapshot = &types.VirtualMachineSnapshotInfo{RootSnapshotList: []types.VirtualMachineSnapshotTree{{
		Name: "ours", Id: 7, Snapshot: types.ManagedObjectReference{Type: "VirtualMachineSnapshot", Value: "snapshot-7"},
	}}}
}

// AwaitSnapshot waits for a snapshot of another client to appear or disappear, as long as the
// host runs a task of the VM.
func TestSnapshotIsAwaited(t *testing.T) {
	for name, c := range map[string]struct {
		before, end func(*simulator.VirtualMachine)
		there, want bool
	}{
		"appears":         {end: addSnapshot, there: true, want: true},
		"does not appear": {end: func(*simulator.VirtualMachine) {}, there: true, want: false},
		"disappears":      {before: addSnapshot, end: func(vm *simulator.VirtualMachine) { vm.Snapshot = nil }, there: false, want: false},
		"stays":           {before: addSnapshot, end: func(*simulator.VirtualMachine) {}, there: false, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			const queries = 3
			r, ref := newBusyVM(t, queries, c.end)
			if c.before != nil {
				c.before(r.model.Map().Get(types.ManagedObjectReference{Type: "VirtualMachine", Value: string(ref)}).(*simulator.VirtualMachine))
			}
			s := r.dial(t)
			began := r.clock.Now()
			entry, is, err := s.AwaitSnapshot(t.Context(), ref, "ours", c.there, time.Minute)
			if err != nil || is != c.want || is && (entry.ID != 7 || entry.Ref != "snapshot-7") {
				t.Errorf("%+v, %v, %v; want %v", entry, is, err, c.want)
			}
			if took := r.clock.Now().Sub(began); took < (queries-1)*time.Minute || took > (queries+1)*time.Minute {
				t.Errorf("waited for %v, with a task of %d minutes", took, queries)
			}
		})
	}
}

func TestAwaitSnapshotWithoutWait(t *testing.T) {
	r, ref := newBusyVM(t, -1, addSnapshot)
	began := r.clock.Now()
	if _, is, err := r.dial(t).AwaitSnapshot(t.Context(), ref, "ours", true, 0); is || err != nil {
		t.Errorf("%v, %v", is, err)
	}
	if r.clock.Now() != began {
		t.Error("AwaitSnapshot waited")
	}
}
