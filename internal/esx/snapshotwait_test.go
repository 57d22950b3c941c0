package esx_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

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
