package landing_test

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/transport"
)

// newRunningRig returns a rig whose VM runs and has an independent second disk.
func newRunningRig(t *testing.T, snapshots ...string) *rig {
	return newRigOf(t, lab.Config{VMs: []lab.VM{{
		Name: "web 01", PoweredOn: true, Snapshots: snapshots,
		Disks: []lab.Disk{largeDisk(), {Capacity: 1 << 20, Mode: "independent_persistent"}},
	}}})
}

func (r *rig) snapshotDisk(snapshot inventory.MoRef, n int) transport.Disk {
	return transport.Disk{VM: r.vm, Disk: &r.vm.Disks[n], Snapshot: snapshot}
}

// The base disk of a running VM, frozen by a snapshot, lands while the VM runs.
func TestSnapshotOfRunningVMLands(t *testing.T) {
	for _, taken := range []string{"before", "by us"} {
		t.Run("taken "+taken, func(t *testing.T) {
			var before []string
			if taken == "before" {
				before = []string{"frozen"}
			}
			r := newRunningRig(t, before...)
			tr := r.newLanding()
			snapshot, found, err := r.session.FindSnapshot(t.Context(), r.vm.Ref, "frozen")
			r.must(err)
			if !found {
				snapshot, err = r.session.CreateSnapshot(t.Context(), r.vm.Ref, esx.SnapshotSpec{Name: "frozen"})
				r.must(err)
			}
			if o, err := tr.Probe(t.Context(), r.snapshotDisk(snapshot, 0)); err != nil || !o.Usable || !o.Running {
				t.Errorf("offer %+v, error %v, want a usable one for a running VM", o, err)
			}
			f, job := newImageJob(filepath.Join(t.TempDir(), "disk.raw"), &r.vm.Disks[0], image.Raw)
			r.must(r.fillImage(tr, r.snapshotDisk(snapshot, 0), job))
			r.requireSameContent(f, 0)
			if vm, err := r.session.VM(t.Context(), "web 01"); err != nil || vm.Power != inventory.PoweredOn {
				t.Errorf("the VM is %v, error %v, want it powered on", vm.Power, err)
			}
		})
	}
}

func TestIndependentDiskOfRunningVMIsNotOffered(t *testing.T) {
	r := newRunningRig(t, "frozen")
	tr := r.newLanding()
	snapshot, _, err := r.session.FindSnapshot(t.Context(), r.vm.Ref, "frozen")
	r.must(err)
	if o, err := tr.Probe(t.Context(), r.snapshotDisk(snapshot, 1)); err != nil || o.Usable || o.Running || !strings.Contains(o.Reason, "migrate the VM powered off") {
		t.Errorf("offer %+v, error %v, want a reason against it", o, err)
	}
	_, job := newImageJob(filepath.Join(t.TempDir(), "disk.raw"), &r.vm.Disks[1], image.Raw)
	if err := r.fillImage(tr, r.snapshotDisk(snapshot, 1), job); !fault.Is(err, fault.NotFound) {
		t.Errorf("error %v, want kind NotFound", err)
	}
}

// Without a snapshot, the host refuses to copy a disk of a running VM, because the disk is locked.
func TestRunningVMNeedsSnapshot(t *testing.T) {
	r := newRunningRig(t)
	tr, stays := r.newLandingFor(&fakeHost{})
	_, err := r.landDisk(tr, 0, image.Raw)
	if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("error %v (hint: %s), want Conflict and a hint", err, fault.HintOf(err))
	}
	r.closeAndRequireClean(tr, stays)
}

// If the snapshot is removed during the copy, the Transfer fails, because the copy may mix two states of the disk.
func TestSnapshotRemovedDuringCopyFailsTransfer(t *testing.T) {
	r := newRunningRig(t)
	snapshot, err := r.session.CreateSnapshot(t.Context(), r.vm.Ref, esx.SnapshotSpec{Name: "frozen"})
	r.must(err)
	host := &fakeHost{}
	removed := make(chan error, 1)
	r.injectFault(lab.FaultCloneStall)
	var once sync.Once
	host.onProgress = func(int) {
		once.Do(func() {
			removed <- r.session.RemoveSnapshot(t.Context(), r.vm.Ref, snapshot, nil)
			r.lab.Faults().Release()
		})
	}
	tr, stays := r.newLandingFor(host)
	_, job := newImageJob(filepath.Join(t.TempDir(), "disk.raw"), &r.vm.Disks[0], image.Raw)
	err = r.fillImage(tr, r.snapshotDisk(snapshot, 0), job)
	r.must(<-removed)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "snapshot was removed") || fault.HintOf(err) == "" {
		t.Errorf("error %v (hint: %s), want Conflict with the removed snapshot and a hint", err, fault.HintOf(err))
	}
	r.closeAndRequireClean(tr, stays)
}
