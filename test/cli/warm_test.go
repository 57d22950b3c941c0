package cli

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
	"github.com/decamp/decamp/test/lane"
)

// writingLab returns a lab with one running VM whose guest writes continuously.
func writingLab() lab.Config {
	cfg := smallLab()
	cfg.Locks = lab.LockActive // so that https can read the disks of the running VM
	vm := &cfg.VMs[0]
	vm.PoweredOn, vm.ChangeTracking, vm.Disks = true, false, fewBytes()
	vm.Guest.Writes = lab.Writes{Seed: 7, Rate: 2 << 20, Spread: 40, AtStop: 9}
	return cfg
}

// startWarm starts a warm migration with rounds every second.
func (r *rig) startWarm(more ...string) *migration {
	r.t.Helper()
	return r.startMigration("web01", append([]string{"--warm", "--interval", "1s"}, more...)...)
}

// waitRounds waits until n rounds are done.
func (u *migration) waitRounds(n int) {
	u.t.Helper()
	for range n {
		u.untilEvent(journal.RoundDone, "round")
	}
}

// onlyRun returns the ID of the only run.
func (r *rig) onlyRun() string {
	r.t.Helper()
	runs, err := journal.NewStore(r.stateDir()).Runs()
	must(r.t, err)
	if len(runs) != 1 {
		r.t.Fatalf("%d recorded runs, want 1", len(runs))
	}
	return string(runs[0].Plan.ID)
}

// sourceVM reads a VM of the source in a separate session.
func (r *rig) sourceVM(name string) *inventory.VM {
	r.t.Helper()
	vm, err := r.openSession().VM(r.t.Context(), name)
	must(r.t, err)
	return vm
}

// checkRestored checks that the VM has no snapshots, no change tracking and that power state, and that decamp left no
// datastore on the host.
func (r *rig) checkRestored(power inventory.Power) {
	r.t.Helper()
	vm := r.sourceVM("web01")
	if vm.Snapshots > 0 || vm.ConsolidationNeeded || vm.ChangeTracking || vm.Power != power {
		r.t.Errorf("the VM has %d snapshots, consolidation needed %v, tracking %v, is %s; want 0, false, false, %s",
			vm.Snapshots, vm.ConsolidationNeeded, vm.ChangeTracking, vm.Power, power)
	}
	if left := r.lab.Mounts(); len(left) > 0 {
		r.t.Errorf("the host still has the datastores %v", left)
	}
}

// checkMoved checks that the images match the disks of the powered-off VM, and that nothing else is left.
func (r *rig) checkMoved() {
	r.t.Helper()
	r.checkRestored(inventory.PoweredOff)
	r.compareImage(r.imagePath(0), "web01", 0)
	r.compareImage(r.imagePath(1), "web01", 1)
	r.checkOnlyPublished("web01")
}

// transportFlags returns the flags of each transport that can copy a running VM. A landing has a fixed port, because the
// host reconnects to the port that it mounted.
func transportFlags(t *testing.T, cfg *lab.Config) map[string][]string {
	portmap := loopback.Reserve(t)
	cfg.NFS = lab.NFS{Portmap: portmap}
	return map[string][]string{
		"https":   {"--transport", "https"},
		"nfc":     {"--transport", "nfc"},
		"landing": {"--transport", "landing", "--landing-listen", loopback.Reserve(t), "--landing-portmap", portmap},
	}
}

func TestWarmMigration(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"https", "nfc", "landing"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			cfg := writingLab()
			args := transportFlags(t, &cfg)[transport]
			r := newRig(t, cfg).withFingerprint()
			u := r.startWarm(args...)
			u.waitRounds(2)
			r.run("cutover", r.onlyRun()).wantExit(0).wantOutput("cuts over when no round is running")
			u.waitSuccess()
			r.checkMoved()
			r.run("verify", r.vmsDir()+"/web01").wantExit(0)
		})
	}
}

// In a warm migration to qcow2 the tables are written during the outage. The data that rounds have verified stays
// verified, so that the outage does not read most of the bytes.
func TestWarmMigrationToQCOW2(t *testing.T) {
	t.Parallel()
	cfg := writingLab()
	cfg.VMs[0].Disks = mostlyUnchangedDisks()
	cfg.VMs[0].Guest.Writes.Rate, cfg.VMs[0].Guest.Writes.AtStop = 0, 2
	r := newRig(t, cfg).withFingerprint()
	u := r.startWarm("--transport", "nfc", "--format", "qcow2")
	u.waitRounds(1)
	must(t, r.lab.GuestWrites("web01", 20))
	u.waitRounds(2)
	r.run("cutover", r.onlyRun()).wantExit(0)
	var out struct {
		Facts struct {
			Images   []struct{ Size int64 }
			Verified []struct {
				VerifiedBefore int64
				SHA256         string
			}
		}
	}
	must(t, json.Unmarshal(u.readLast(), &out))
	u.waitSuccess()
	if len(out.Facts.Verified) != 2 {
		t.Fatalf("verified %+v", out.Facts.Verified)
	}
	for i, v := range out.Facts.Verified {
		if size := out.Facts.Images[i].Size; v.VerifiedBefore < size/2 || v.VerifiedBefore > size || v.SHA256 != "" {
			t.Errorf("disk %d of %d bytes: %d were verified before the outage, SHA-256 %q", i, size, v.VerifiedBefore, v.SHA256)
		}
	}
	r.checkRestored(inventory.PoweredOff)
	r.run("verify", r.vmsDir()+"/web01").wantExit(0)
	r.compareImages(filepath.Join(r.vmsDir(), "web01"), "qcow2")
}

// readLast reads all events and returns the last line.
func (u *migration) readLast() (line []byte) {
	for u.events.Scan() {
		line = bytes.Clone(u.events.Bytes())
	}
	return line
}

// waitSuccess waits for the end of the migration and checks that it succeeds.
func (u *migration) waitSuccess() {
	u.t.Helper()
	if code := u.waitExit(); code != 0 {
		u.t.Fatalf("exit code %d: %s", code, u.stderr.String())
	}
}

// waitCanceled waits for the end of a run that decamp cancel stops. It returns false if the run was done before.
func (u *migration) waitCanceled() bool {
	u.t.Helper()
	code := u.waitExit()
	if code != 0 && code != exitCanceled {
		u.t.Fatalf("exit code %d: %s", code, u.stderr.String())
	}
	return code == exitCanceled
}

// A warm migration that is killed at random moments continues with the same command. The images match the disks of the
// powered-off VM.
func TestWarmMigrationKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"https", "nfc", "landing"} {
		if !lane.Slow && transport != "landing" {
			continue // landing also leaves a datastore on the host
		}
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			cfg := writingLab()
			args := transportFlags(t, &cfg)[transport]
			cfg.NFS.Times = shortAPD
			r := newRig(t, cfg).withFingerprint().withStepwiseEvents()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			for range map[bool]int{false: 2, true: 4}[lane.Slow] {
				u := r.startWarm(args...)
				u.readEvents(1 + rnd.IntN(25))
				u.endWith(syscall.SIGKILL)
			}
			u := r.startWarm(args...)
			u.waitRounds(1)
			r.run("cutover", r.onlyRun()).wantExit(0)
			u.readEvents(rnd.IntN(20)) // somewhere in the cutover
			u.endWith(syscall.SIGKILL)
			r.waitFilesClosed() // the next command cannot remove the datastore before
			r.startWarm(args...).waitSuccess()
			r.checkMoved()
		})
	}
}

// readEvents reads n events of any kind.
func (u *migration) readEvents(n int) {
	for range n {
		if !u.events.Scan() {
			return
		}
	}
}
