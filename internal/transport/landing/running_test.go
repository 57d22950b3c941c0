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

// newRunning is a rig whose VM runs, with an independent disk as its second.
func newRunning(t *testing.T, snapshots ...string) *rig {
	return newRigOf(t, lab.Config{VMs: []lab.VM{{
		Name: "web 01", PoweredOn: true, Snapshots: snapshots,
		Disks: []lab.Disk{aDisk(), {Capacity: 1 << 20, Mode: "independent_persistent"}},
	}}})
}

func (r *rig) at(snapshot inventory.MoRef, n int) transport.Disk {
	return transport.Disk{VM: r.vm, Disk: &r.vm.Disks[n], Snapshot: snapshot}
}

// The base of a VM that runs, frozen by a snapshot, lands while it runs.
func TestFrozenBaseOfARunningVMLands(t *testing.T) {
	for _, taken := range []string{"before", "by us"} {
		t.Run("taken "+taken, func(t *testing.T) {
			var before []string
			if taken == "before" {
				before = []string{"frozen"}
			}
			r := newRunning(t, before...)
			tr := r.landing()
			snapshot, found, err := r.session.FindSnapshot(t.Context(), r.vm.Ref, "frozen")
			r.must(err)
			if !found {
				snapshot, err = r.session.CreateSnapshot(t.Context(), r.vm.Ref, esx.SnapshotSpec{Name: "frozen"})
				r.must(err)
			}
			if o, err := tr.Probe(t.Context(), r.at(snapshot, 0)); err != nil || !o.Usable || !o.Running {
				t.Errorf("offer %+v, %v", o, err)
			}
			f, job := jobOf(filepath.Join(t.TempDir(), "disk.raw"), &r.vm.Disks[0], image.Raw)
			r.must(r.fill(tr, r.at(snapshot, 0), job))
			r.same(f, 0)
			if vm, err := r.session.VM(t.Context(), "web 01"); err != nil || vm.Power != inventory.PoweredOn {
				t.Errorf("the VM is %+v, %v", vm.Power, err)
			}
		})
	}
}

func TestDiskThatSnapshotsLeaveOutIsNotOffered(t *testing.T) {
	r := newRunning(t, "frozen")
	tr := r.landing()
	snapshot, _, err := r.session.FindSnapshot(t.Context(), r.vm.Ref, "frozen")
	r.must(err)
	if o, err := tr.Probe(t.Context(), r.at(snapshot, 1)); err != nil || o.Usable || o.Running || !strings.Contains(o.Reason, "migrate the VM powered off") {
		t.Errorf("offer %+v, %v", o, err)
	}
	_, job := jobOf(filepath.Join(t.TempDir(), "disk.raw"), &r.vm.Disks[1], image.Raw)
	if err := r.fill(tr, r.at(snapshot, 1), job); !fault.Is(err, fault.NotFound) {
		t.Errorf("it landed: %v", err)
	}
}

// The disk that a running VM writes to is refused by the host, which has it locked.
func TestDiskOfARunningVMIsNotLandedWithoutASnapshot(t *testing.T) {
	r := newRunning(t)
	tr, told := r.landingOf(&odd{})
	_, err := r.land(tr, 0, image.Raw)
	if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("%v (remedy: %s)", err, fault.HintOf(err))
	}
	r.gone(tr, told)
}

// Somebody removes the snapshot: what lands may be half before and half after.
func TestSnapshotThatGoesIsNoticed(t *testing.T) {
	r := newRunning(t)
	snapshot, err := r.session.CreateSnapshot(t.Context(), r.vm.Ref, esx.SnapshotSpec{Name: "frozen"})
	r.must(err)
	host := &odd{}
	removed := make(chan error, 1)
	r.inject(lab.FaultCloneStall)
	var once sync.Once
	host.progress = func(int) {
		once.Do(func() {
			removed <- r.session.RemoveSnapshot(t.Context(), r.vm.Ref, snapshot, nil)
			r.lab.Faults().Release()
		})
	}
	tr, told := r.landingOf(host)
	_, job := jobOf(filepath.Join(t.TempDir(), "disk.raw"), &r.vm.Disks[0], image.Raw)
	err = r.fill(tr, r.at(snapshot, 0), job)
	r.must(<-removed)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "snapshot was removed") || fault.HintOf(err) == "" {
		t.Errorf("%v (remedy: %s)", err, fault.HintOf(err))
	}
	r.gone(tr, told)
}
