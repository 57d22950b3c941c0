package cli

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/lane"
)

// Exit codes of errors.
var (
	exitCanceled = fault.ExitCode(fault.New(fault.Canceled, ""))
	exitConflict = fault.ExitCode(fault.New(fault.Conflict, ""))
	exitFull     = fault.ExitCode(fault.New(fault.Full, ""))
)

// startWarmIdle starts a warm migration with rounds every hour. It waits after the first round.
func (r *rig) startWarmIdle(more ...string) *migration {
	r.t.Helper()
	return r.startMigration("web01", append([]string{"--warm", "--transport", "nfc"}, more...)...)
}

// openSession opens a separate session with the host.
func (r *rig) openSession() *esx.Session {
	r.t.Helper()
	at, err := url.Parse(r.url())
	must(r.t, err)
	host, err := esx.Dial(r.t.Context(), esx.Config{
		URL:         at,
		Fingerprint: r.lab.Fingerprint(),
		Password:    func(context.Context) (esx.Secret, error) { return secret, nil },
	})
	must(r.t, err)
	r.t.Cleanup(func() { must(r.t, host.Close()) })
	return host
}

// checkStillRuns checks that the VM runs without snapshots after a failed run, and is not published.
func (r *rig) checkStillRuns() {
	r.t.Helper()
	if vm := r.sourceVM("web01"); vm.Snapshots > 0 || vm.ConsolidationNeeded || vm.Power != inventory.PoweredOn {
		r.t.Errorf("the VM has %d snapshots, consolidation needed %v, is %s", vm.Snapshots, vm.ConsolidationNeeded, vm.Power)
	}
	if left, err := os.ReadDir(filepath.Join(r.vmsDir(), "web01")); err == nil {
		r.t.Errorf("the VM is published: %v", left)
	}
}

// cutOver sends the command for the cutover and waits for the end of the migration.
func (r *rig) cutOver(u *migration) {
	r.t.Helper()
	r.run("cutover", r.onlyRun()).wantExit(0)
	u.waitSuccess()
	r.checkMoved()
}

// If a snapshot fails, the run ends, the VM keeps running without snapshots, and the same command continues. If only the
// consolidation fails, decamp consolidates the disks.
func TestWarmSnapshotFaults(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		fault  lab.Fault
		passes bool
	}{
		{lab.Fault{Kind: lab.FaultSnapshotCreate, Count: 1}, false},
		{lab.Fault{Kind: lab.FaultSnapshotCreate, Count: 1, Skip: 1}, false},
		{lab.Fault{Kind: lab.FaultSnapshotRemove, Count: 1}, false},
		{lab.Fault{Kind: lab.FaultSnapshotRemove, Count: 1, Skip: 1}, false},
		{lab.Fault{Kind: lab.FaultSnapshotConsolidate, Count: 1}, true},
		{lab.Fault{Kind: lab.FaultCBTFail, Count: 1}, true},
	} {
		if !lane.Slow && !f.passes && f.fault.Skip == 0 {
			continue // the second snapshot is enough
		}
		t.Run(string(f.fault.Kind), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, writingLab()).withFingerprint()
			_, err := r.lab.Faults().Add(f.fault)
			must(t, err)
			u := r.startWarm("--transport", "nfc")
			if !f.passes {
				if code := u.waitExit(); code == 0 {
					t.Fatal("the migration succeeded")
				}
				r.checkStillRuns()
				u = r.startWarm("--transport", "nfc")
				u.waitRounds(1)
			} else {
				u.waitRounds(2)
			}
			r.cutOver(u)
			r.checkFaultsHappened()
		})
	}
}

// Another user changes the VM or the host while a run waits. The cutover then succeeds, or is refused until the change is
// undone.
func TestWarmRunWithForeignChanges(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *rig) (undo func()){
		"session ended":    func(r *rig) func() { r.lab.KillSessions(); return nil },
		"host restarted":   func(r *rig) func() { must(r.t, r.lab.Restart()); return nil },
		"change ids reset": func(r *rig) func() { must(r.t, r.lab.ResetCBT("web01")); return nil },
		"tracking off": func(r *rig) func() {
			must(r.t, r.openSession().TrackChanges(r.t.Context(), r.sourceVM("web01").Ref, false))
			return nil
		},
		"powered off": func(r *rig) func() { must(r.t, r.lab.SetPower("web01", false)); return nil },
		"snapshot of others": func(r *rig) func() {
			s, vm := r.openSession(), r.sourceVM("web01").Ref
			ref, err := s.CreateSnapshot(r.t.Context(), vm, esx.SnapshotSpec{Name: "before the update"})
			must(r.t, err)
			return func() { must(r.t, s.RemoveSnapshot(r.t.Context(), vm, ref, nil)) }
		},
	} {
		if !lane.Slow && (name == "session ended" || name == "change ids reset") {
			continue // similar to "host restarted" and "tracking off"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, writingLab()).withFingerprint()
			u := r.startWarmIdle()
			u.untilEvent(journal.StepStarted, "wait")
			undo := change(r)
			r.run("cutover", r.onlyRun()).wantExit(0)
			if undo != nil { // decamp refuses the cutover before the outage
				if code := u.waitExit(); code != exitConflict {
					t.Fatalf("exit code %d, want that of a conflict", code)
				}
				if vm := r.sourceVM("web01"); vm.Power != inventory.PoweredOn || vm.Snapshots != 1 {
					t.Errorf("the VM is %s with %d snapshots", vm.Power, vm.Snapshots)
				}
				undo()
				u = r.startWarmIdle()
			}
			u.waitSuccess()
			r.checkMoved()
		})
	}
}

// A snapshot that another user removes during a round is replaced.
func TestWarmSnapshotRemovedDuringRound(t *testing.T) {
	t.Parallel()
	cfg := writingLab()
	cfg.NFC = lab.NFC{HostRate: 1e6} // many seconds for the first round
	r := newRig(t, cfg).withFingerprint()
	u := r.startWarm("--transport", "nfc")
	u.untilCopied(2 << 20)
	must(t, r.lab.SetNFC(lab.NFC{HostRate: 1e6 / 64})) // the round must not end before its snapshot is removed
	s, vm := r.openSession(), r.sourceVM("web01").Ref
	ref, found, err := s.FindSnapshot(t.Context(), vm, "decamp "+r.onlyRun()+" 1")
	if err != nil || !found {
		t.Fatalf("found %v, %v", found, err)
	}
	must(t, s.RemoveSnapshot(t.Context(), vm, ref, nil))
	must(t, r.lab.SetNFC(lab.NFC{}))
	u.waitRounds(2)
	r.cutOver(u)
}

// checkDiscarded checks that no run is recorded, that its images are removed and that the VM runs without snapshots.
func (r *rig) checkDiscarded() {
	r.t.Helper()
	r.checkRestored(inventory.PoweredOn)
	left, err := os.ReadDir(r.vmsDir())
	must(r.t, err)
	runs, err := journal.NewStore(r.stateDir()).Runs()
	if must(r.t, err); len(left) > 0 || len(runs) > 0 {
		r.t.Errorf("got the files %v and the runs %v, want none", left, runs)
	}
}

// A target that fills up during the outage ends the run. If there is free space, the same command continues. decamp cancel
// discards the run and powers the VM on again.
func TestWarmTargetFullAtCutover(t *testing.T) {
	t.Parallel()
	for _, then := range []string{"room is made", "given up"} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			cfg := writingLab()
			cfg.VMs[0].Guest.Writes.Rate = 0
			r := newRig(t, cfg).withFingerprint()
			mountTmpfs(t, r.vmsDir(), "size=100m")
			u := r.startWarmIdle()
			u.untilEvent(journal.StepStarted, "wait")
			filler := filepath.Join(r.vmsDir(), "filler")
			fillFileSystem(t, filler)
			must(t, r.lab.GuestWrites("web01", 400))
			r.run("cutover", r.onlyRun()).wantExit(0)
			if code := u.waitExit(); code != exitFull {
				t.Fatalf("exit code %d, want that of no space: %s", code, u.stderr.String())
			}
			if vm := r.sourceVM("web01"); vm.Power != inventory.PoweredOff {
				t.Errorf("the VM is %s", vm.Power)
			}
			must(t, os.Remove(filler))
			if then == "given up" {
				r.runOnSource("cancel", r.onlyRun()).wantExit(0)
				r.checkDiscarded()
				return
			}
			r.startWarmIdle().waitSuccess()
			r.checkMoved()
		})
	}
}

// A run that is canceled at any moment restores the VM. The decamp that executes the run cancels it or, if that was killed,
// decamp cancel itself.
func TestWarmCancel(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]moment{
		"first round": {journal.DiskStarted, "round"}, "reading back": {journal.StepStarted, "verify round"}, "waiting": {journal.StepStarted, "wait"},
		"powered off": {journal.StepDone, "power off"}, "last round": {journal.DiskDone, "last round"}, "verify": {journal.StepStarted, "verify"},
	} {
		for _, killed := range []bool{false, true} {
			if !lane.Slow && killed == (name == "waiting" || name == "first round" || name == "last round") {
				continue // each moment once
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, writingLab()).withFingerprint()
				r.stepwise = killed
				u := r.startWarmIdle("--cutover", "2026-01-01T00:00Z") // immediately
				if name == "waiting" {
					u.endWith(syscall.SIGKILL)
					u = r.startWarmIdle()
				}
				u.untilEvent(at.kind, at.step)
				if killed {
					u.endWith(syscall.SIGKILL)
					r.runOnSource("cancel", r.onlyRun()).wantExit(0).wantOutput("is discarded, and its images are removed")
					r.checkDiscarded()
					return
				}
				res := r.runOnSource("cancel", r.onlyRun())
				if !u.waitCanceled() { // the VM was published before
					r.checkMoved()
					return
				}
				res.wantExit(0)
				r.checkDiscarded()
			})
		}
	}
}

// --paranoid finds and reports a changed area that change tracking omits.
func TestWarmParanoid(t *testing.T) {
	t.Parallel()
	cfg := writingLab()
	cfg.VMs[0].Guest.Writes.Spread = 100
	r := newRig(t, cfg).withFingerprint()
	_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultCBTLose})
	must(t, err)
	u := r.startWarmIdle("--paranoid")
	u.untilEvent(journal.StepStarted, "wait")
	must(t, r.lab.GuestWrites("web01", 200))
	r.run("cutover", r.onlyRun()).wantExit(0)
	warned := u.untilEvent(journal.Warned, "last round")
	if warned.Warning == nil || warned.Warning.Code != "changes-missed" {
		t.Errorf("warned of %+v", warned.Warning)
	}
	u.waitSuccess()
	r.checkMoved()
}
