package cli

import (
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
	"github.com/decamp/decamp/internal/lab/nfsclient"
)

// killedLanding is a host that a killed decamp left a datastore on; its copy has failed
// since, as it does when its server stays away.
func killedLanding(t *testing.T) (r *rig, args []string) {
	portmap := loopback.Reserve(t)
	r = newRig(t, lab.Config{
		NFS: lab.NFS{Portmap: portmap, Times: nfsclient.Times{
			Heartbeat: 100 * time.Millisecond, HeartbeatTimeout: 2 * time.Second, APD: 100 * time.Millisecond,
		}},
		VMs: []lab.VM{
			{Name: "web01", Disks: []lab.Disk{{Capacity: 32 << 20, Fill: 100, Seed: 3}}},
			{Name: "web02", Disks: []lab.Disk{{Capacity: 4 << 20, Fill: 50, Seed: 4}}},
		},
	}).trusting()
	_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultCloneStall, Path: "disk.vmdk", At: 16 << 20, Count: 1})
	must(t, err)
	t.Cleanup(r.lab.Faults().Release)
	args = []string{"--transport", "landing", "--landing-listen", loopback.Reserve(t), "--landing-portmap", portmap}
	u := r.begin("web01", args...)
	u.until(1 << 20)
	u.end(syscall.SIGKILL)
	r.lab.Faults().Release()
	for r.lab.Mounts()[0].OpenFiles > 0 {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the host's copy goes on without a server")
		}
	}
	r.run("runs").ends(0).says("Changes on hosts that are not reverted", "datastore decamp-", "esxcli storage nfs remove -v decamp-")
	return r, args
}

// clear checks that no leftover exists, and that none is reported.
func (r *rig) clear() {
	r.t.Helper()
	if left := r.lab.Mounts(); len(left) > 0 {
		r.t.Errorf("the host still has %+v", left)
	}
	var o struct {
		Leftovers []map[string]any
	}
	r.run("runs", "--json").ends(0).last(&o)
	if o.Leftovers == nil || len(o.Leftovers) > 0 {
		r.t.Errorf("on record: %v", o.Leftovers)
	}
}

func TestWhateverComesNextTakesOffWhatWasLeft(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(r *rig, args []string){
		"clean": func(r *rig, _ []string) {
			r.source("clean", r.url()).ends(0).says("Reverted on host ha-host: datastore decamp-")
			r.source("clean", r.url()).ends(0).says("has no recorded changes")
		},
		"another VM by https": func(r *rig, _ []string) {
			r.migrate("web02").ends(0).says("An earlier run left datastore decamp-")
		},
		"discard": func(r *rig, args []string) {
			r.migrate("web01", append(args, "--discard")...).ends(0).says("An earlier run left", "is discarded")
		},
		"the same again": func(r *rig, args []string) {
			r.migrate("web01", args...).ends(0).says("An earlier run left", "is migrated and published")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, args := killedLanding(t)
			next(r, args)
			r.clear()
		})
	}
}

// The snapshot of a warm run that was killed is on record, and is removed by whatever comes next.
func TestLeftSnapshotIsRemoved(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(r *rig){
		"clean": func(r *rig) { r.source("clean", r.url()).ends(0).says("Reverted on host", "snapshot \"decamp web01-") },
		"another VM": func(r *rig) {
			r.migrate("web02").ends(0).says("An earlier run left snapshot \"decamp web01-")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := writing()
			cfg.VMs = append(cfg.VMs, lab.VM{Name: "web02", Disks: []lab.Disk{{Capacity: 4 << 20, Fill: 50, Seed: 4}}})
			r := newRig(t, cfg).trusting().steps()
			u := r.resting()
			u.untilEvent(journal.DiskStarted, "round")
			u.end(syscall.SIGKILL)
			r.run("runs").ends(0).says("Changes on hosts that are not reverted", "snapshot \"decamp web01-")
			next(r)
			if vm := r.vm("web01"); vm.Snapshots > 0 {
				t.Errorf("the VM has %d snapshots", vm.Snapshots)
			}
			r.clear()
		})
	}
}

// A host that is no more is forgotten without being asked.
func TestForgottenHostIsNotAsked(t *testing.T) {
	t.Parallel()
	r, _ := killedLanding(t)
	must(t, r.lab.Stop())
	r.source("clean", r.url()).ends(5)
	r.run("runs").says("datastore decamp-")
	r.source("clean", r.url(), "--forget").ends(0).says("Removed the record of")
	must(t, r.lab.Resume())
	if left := r.lab.Mounts(); len(left) != 1 {
		t.Errorf("the host has %+v", left)
	}
	var o struct{ Leftovers []map[string]any }
	r.run("runs", "--json").ends(0).last(&o)
	if len(o.Leftovers) > 0 {
		t.Errorf("on record: %v", o.Leftovers)
	}
}
