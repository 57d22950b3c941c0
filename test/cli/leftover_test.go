package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
	"github.com/decamp/decamp/internal/lab/nfsclient"
	"github.com/decamp/decamp/internal/manifest"
)

// shortAPD are the times of a host that gives up a copy some 8 s after its NFS server is killed. A server on a busy
// machine answers earlier.
var shortAPD = nfsclient.Times{Heartbeat: time.Second, APD: 5 * time.Second}

// newRigWithLeftover returns a host with a datastore that a killed decamp left. The copy to it has failed, because its
// server does not return.
func newRigWithLeftover(t *testing.T) (r *rig, args []string) {
	portmap := loopback.Reserve(t)
	r = newRig(t, lab.Config{
		NFS: lab.NFS{Portmap: portmap, Times: nfsclient.Times{
			Heartbeat: 100 * time.Millisecond, HeartbeatTimeout: 2 * time.Second, APD: 100 * time.Millisecond,
		}},
		VMs: []lab.VM{
			{Name: "web01", Disks: []lab.Disk{{Capacity: 32 << 20, Fill: 100, Seed: 3}}},
			{Name: "web02", Disks: []lab.Disk{{Capacity: 4 << 20, Fill: 50, Seed: 4}}},
		},
	}).withFingerprint()
	_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultCloneStall, Path: "disk.vmdk", At: 16 << 20, Count: 1})
	must(t, err)
	t.Cleanup(r.lab.Faults().Release)
	args = []string{"--transport", "landing", "--landing-listen", loopback.Reserve(t), "--landing-portmap", portmap}
	u := r.startMigration("web01", args...)
	u.untilCopied(1 << 20)
	u.endWith(syscall.SIGKILL)
	r.lab.Faults().Release()
	r.waitFilesClosed()
	r.run("runs").wantExit(0).wantOutput("Changes on hosts that are not reverted", "datastore decamp-", "esxcli storage nfs remove -v decamp-")
	return r, args
}

// waitFilesClosed waits until the host has no file of a datastore open: it gives up copies whose server was killed.
func (r *rig) waitFilesClosed() {
	r.t.Helper()
	isOpen := func(m lab.Mount) bool { return m.OpenFiles > 0 }
	r.waitUntil("the host closes the files of its datastores", func() bool { return !slices.ContainsFunc(r.lab.Mounts(), isOpen) })
}

// checkNoLeftovers checks that no leftover exists and that decamp runs lists none.
func (r *rig) checkNoLeftovers() {
	r.t.Helper()
	if left := r.lab.Mounts(); len(left) > 0 {
		r.t.Errorf("the host still has the datastores %+v", left)
	}
	var o struct {
		Leftovers []map[string]any
	}
	r.run("runs", "--json").wantExit(0).decodeLast(&o)
	if o.Leftovers == nil || len(o.Leftovers) > 0 {
		r.t.Errorf("recorded leftovers: %v", o.Leftovers)
	}
}

func TestNextCommandRemovesLeftovers(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(r *rig, args []string){
		"clean": func(r *rig, _ []string) {
			r.runOnSource("clean", r.url()).wantExit(0).wantOutput("Reverted on host ha-host: datastore decamp-")
			r.runOnSource("clean", r.url()).wantExit(0).wantOutput("has no recorded changes")
		},
		"another VM by https": func(r *rig, _ []string) {
			r.migrate("web02").wantExit(0).wantOutput("An earlier run left datastore decamp-")
		},
		"discard": func(r *rig, args []string) {
			r.migrate("web01", append(args, "--discard")...).wantExit(0).wantOutput("An earlier run left", "is discarded")
		},
		"the same again": func(r *rig, args []string) {
			r.migrate("web01", args...).wantExit(0).wantOutput("An earlier run left", "is migrated and published")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, args := newRigWithLeftover(t)
			next(r, args)
			r.checkNoLeftovers()
		})
	}
}

// A warm run continues without a landing if each image has data. If the host still copies to the datastore of the
// killed run, the datastore stays recorded, and decamp clean removes it later.
func TestDatastoreInUseStaysRecorded(t *testing.T) {
	t.Parallel()
	cfg := writingLab()
	args := transportFlags(t, &cfg)["landing"]
	cfg.NFS.Times = shortAPD
	r := newRig(t, cfg).withFingerprint()
	_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultCloneStall, At: 3 << 20, Count: 2})
	must(t, err)
	t.Cleanup(r.lab.Faults().Release)
	u := r.startWarm(args...)
	r.waitForManifests(2, "both manifests list a chunk", func(m *manifest.Log) bool { return m.Missing() < m.Chunks() })
	u.endWith(syscall.SIGKILL)

	u = r.startWarm(args...)
	u.waitRounds(1)
	r.run("cutover", r.onlyRun()).wantExit(0)
	u.waitSuccess()
	if text := u.stderr.String(); !strings.Contains(text, "still has datastore decamp-") || !strings.Contains(text, "decamp clean") {
		t.Errorf("the leftover is not reported: %s", text)
	}
	r.runOnSource("clean", r.url()).wantExit(6).wantOutput("still has datastore decamp-")
	r.lab.Faults().Release()
	r.waitFilesClosed()
	r.runOnSource("clean", r.url()).wantExit(0).wantOutput("Reverted on host ha-host: datastore decamp-")
	r.checkNoLeftovers()
	r.checkMoved()
}

// waitForManifests waits until the manifests of n disks of the running copy fulfil a condition. It reads copies of the
// manifests, which decamp has locked.
func (r *rig) waitForManifests(n int, condition string, isTrue func(*manifest.Log) bool) {
	r.t.Helper()
	readable := filepath.Join(r.t.TempDir(), "manifest")
	r.waitUntil(condition, func() bool {
		fulfilled := 0
		for _, path := range r.manifestPaths(r.vmsDir()) {
			text, err := os.ReadFile(path)
			must(r.t, err)
			must(r.t, os.WriteFile(readable, text, 0o600))
			log, err := manifest.Open(readable)
			if err != nil {
				return false // decamp has not yet written the header
			}
			if isTrue(log) {
				fulfilled++
			}
			must(r.t, log.Close())
		}
		return fulfilled == n
	})
}

// The snapshot of a killed warm run is recorded. decamp clean and the next decamp command for the host remove it.
func TestLeftoverSnapshotIsRemoved(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(r *rig){
		"clean": func(r *rig) {
			r.runOnSource("clean", r.url()).wantExit(0).wantOutput("Reverted on host", "snapshot \"decamp web01-")
		},
		"another VM": func(r *rig) {
			r.migrate("web02").wantExit(0).wantOutput("An earlier run left snapshot \"decamp web01-")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := writingLab()
			cfg.VMs = append(cfg.VMs, lab.VM{Name: "web02", Disks: []lab.Disk{{Capacity: 4 << 20, Fill: 50, Seed: 4}}})
			r := newRig(t, cfg).withFingerprint().withStepwiseEvents()
			u := r.startWarmIdle()
			u.untilEvent(journal.DiskStarted, "round")
			u.endWith(syscall.SIGKILL)
			r.run("runs").wantExit(0).wantOutput("Changes on hosts that are not reverted", "snapshot \"decamp web01-")
			next(r)
			if vm := r.sourceVM("web01"); vm.Snapshots > 0 {
				t.Errorf("the VM has %d snapshots", vm.Snapshots)
			}
			r.checkNoLeftovers()
		})
	}
}

// decamp clean --forget removes the record of an unreachable host without a connection to it.
func TestForgetRemovesRecordWithoutConnection(t *testing.T) {
	t.Parallel()
	r, _ := newRigWithLeftover(t)
	must(t, r.lab.Stop())
	r.runOnSource("clean", r.url()).wantExit(5)
	r.run("runs").wantOutput("datastore decamp-")
	r.runOnSource("clean", r.url(), "--forget").wantExit(0).wantOutput("Removed the record of")
	must(t, r.lab.Resume())
	if left := r.lab.Mounts(); len(left) != 1 {
		t.Errorf("the host has the datastores %+v, want one", left)
	}
	var o struct{ Leftovers []map[string]any }
	r.run("runs", "--json").wantExit(0).decodeLast(&o)
	if len(o.Leftovers) > 0 {
		t.Errorf("recorded leftovers: %v", o.Leftovers)
	}
}
