package esx_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vmware/govmomi/simulator"

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
		if d, err := s.FrozenDisk(t.Context(), ref, vm.Disks[0].Key); err != nil || d.Path.File != want || d.Key != vm.Disks[0].Key || d.Capacity != vm.Disks[0].Capacity {
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
