package cli

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/lane"
)

// exitDenied is the exit code of fault.Denied.
var exitDenied = fault.ExitCode(fault.New(fault.Denied, ""))

// newFreeRig returns a host with a free licence. It accepts SSH logins, unless cfg disables them.
func newFreeRig(t *testing.T, cfg lab.Config) *rig {
	t.Helper()
	r := newRig(t, freeLicence(cfg)).withFingerprint()
	_, port, err := net.SplitHostPort(r.lab.SSHAddr(""))
	must(t, err)
	r.extra = append(r.extra, "--ssh-port", port)
	return r
}

// checkNoRecords checks that no leftover is recorded, and that the API refused that many requests for a snapshot.
func (r *rig) checkNoRecords(refused int64) {
	r.t.Helper()
	records, err := filepath.Glob(filepath.Join(r.stateDir(), "leftovers", "*.json"))
	must(r.t, err)
	if len(records) > 0 {
		r.t.Errorf("recorded leftovers: %v", records)
	}
	if n := r.lab.Stats().SOAP["CreateSnapshot_Task"]; n != refused {
		r.t.Errorf("the API received %d requests for a snapshot, want %d", n, refused)
	}
}

// With a free licence the API neither creates snapshots nor powers VMs off, so decamp uses vim-cmd. It detects an unknown
// licence when the API refuses a call.
func TestWarmWithAFreeLicence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edition   string
		transport string
		refused   int64
	}{
		"known, https": {"", "https", 0}, "known, nfc": {"", "nfc", 0}, "known, landing": {"", "landing", 0}, "unknown, nfc": {"esxNew", "nfc", 0},
	} {
		if !lane.Slow && strings.HasPrefix(name, "known") && c.transport != "landing" {
			continue // similar to the unknown licence
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := writingLab()
			cfg.LicenceEdition = c.edition
			args := transportFlags(t, &cfg)[c.transport]
			r := newFreeRig(t, cfg)
			u := r.startWarm(args...)
			warned := u.untilEvent(journal.Warned, "track")
			if w := warned.Warning; w == nil || w.Code != "no-change-tracking" || !strings.Contains(w.Text, "13 MiB, about 1s at 100 MiB/s") || !strings.Contains(w.Text, "in the outage") {
				t.Errorf("warned of %+v", warned.Warning)
			}
			u.waitRounds(1)
			var read, written int
			done := u.untilEvent(journal.RoundDone, "round").Message
			if _, err := fmt.Sscanf(done, "round 2: %d MiB read, %d MiB written", &read, &written); err != nil || written >= read || read >= 24 && c.transport == "nfc" {
				t.Errorf("round 2 read more than is allocated, or wrote more than differs: %s, %v", done, err)
			}
			r.cutOver(u)
			r.checkNoRecords(c.refused)
			r.run("verify", r.vmsDir()+"/web01").wantExit(0)
			if n := r.lab.Stats().VimCmd["vmsvc/snapshot.create"]; n < 2 {
				t.Errorf("vim-cmd created %d snapshots, want 2 or more", n)
			}
		})
	}
}

// If change tracking was enabled before the paid licence ended, rounds read only the changed areas. decamp detects an
// unknown licence at the first snapshot.
func TestWarmWithAFreeLicenceAndTracking(t *testing.T) {
	t.Parallel()
	cfg := writingLab()
	cfg.LicenceEdition, cfg.VMs[0].ChangeTracking, cfg.VMs[0].Guest.Writes.Rate = "esxNew", true, 0
	r := newFreeRig(t, cfg)
	u := r.startWarm("--transport", "nfc")
	u.waitRounds(1)
	must(t, r.lab.GuestWrites("web01", 3))
	var read int
	done := u.untilEvent(journal.RoundDone, "round").Message
	if _, err := fmt.Sscanf(done, "round 2: %d MiB read", &read); err != nil || read > 4 { // 13 MiB are allocated
		t.Errorf("the second round did not read only the changed areas: %s, %v", done, err)
	}
	r.run("cutover", r.onlyRun()).wantExit(0)
	u.waitSuccess()
	r.compareImages(filepath.Join(r.vmsDir(), "web01"), "raw")
	r.checkNoRecords(1)
}

// Without SSH, a warm migration with a free licence is refused and changes nothing. The remedies work.
func TestWarmWithAFreeLicenceWithoutSSH(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edition string
		tracked bool
		step    string // step that decamp refuses
	}{
		"known":            {"", false, "prepare"},
		"unknown":          {"esxNew", false, "track"},
		"unknown, tracked": {"esxNew", true, "snapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := writingLab()
			cfg.LicenceEdition, cfg.VMs[0].ChangeTracking = c.edition, c.tracked
			r := newFreeRig(t, cfg)
			must(t, r.lab.SetSSH(false))
			for _, consent := range [][]string{nil, {"--enable-ssh"}} {
				res := r.migrate("web01", append(consent, "--warm", "--transport", "nfc")...).wantExit(exitDenied).
					wantOutput("licence (free ESXi)", "SSH", "Remedy: ", "start_ssh", "shut the VM down", "without --warm", "paid licence")
				if contains(res.stderr, "--enable-ssh") {
					t.Errorf("the remedy cannot work, because the API is read-only: %s", res.stderr)
				}
				if contains(res.stderr, "no-change-tracking") {
					t.Errorf("the run continued without change tracking: %s", res.stderr)
				}
			}
			if run := r.run("runs").wantExit(0); !contains(run.stdout, c.step) {
				t.Errorf("the run did not end in the step %s: %s", c.step, run.stdout)
			}
			r.checkUntouched(c.tracked)
			must(t, r.lab.SetPower("web01", false)) // the user follows the remedy
			if c.step != "prepare" {
				r.migrate("web01", "--transport", "https").wantExit(exitConflict).wantOutput("decamp rollback " + r.onlyRun())
				r.runOnSource("cancel", r.onlyRun()).wantExit(0)
			}
			if lane.Slow || c.step == "prepare" {
				r.migrate("web01", "--transport", "https").wantExit(0).wantOutput("is migrated and published")
			}
		})
	}
}

// checkUntouched checks that the VM runs as before, and that no leftover is recorded.
func (r *rig) checkUntouched(tracked bool) {
	r.t.Helper()
	vm := r.sourceVM("web01")
	if vm.Power != inventory.PoweredOn || vm.Snapshots > 0 || vm.ChangeTracking != tracked {
		r.t.Errorf("the VM is %s with %d snapshots, tracking %v", vm.Power, vm.Snapshots, vm.ChangeTracking)
	}
	if calls := r.lab.Stats().VimCmd; len(calls) > 0 {
		r.t.Errorf("unexpected calls of vim-cmd: %v", calls)
	}
	if left := r.run("runs").wantExit(0).stdout; contains(left, "snapshot \"") || contains(left, "SSH on") {
		r.t.Errorf("recorded leftovers: %s", left)
	}
}

// A run that is killed at the start or end of any step continues with the same command.
func TestWarmWithAFreeLicenceKilledAtEachStep(t *testing.T) {
	t.Parallel()
	quick := []moment{{journal.StepDone, "snapshot"}, {journal.StepDone, "power off"}} // the work of vim-cmd is not recorded yet
	for _, step := range []string{"prepare", "track", "snapshot", "round", "verify round", "wait", "power off", "last round", "verify", "commit", "restore"} {
		for _, kind := range []journal.EventKind{journal.StepStarted, journal.StepDone} {
			if !lane.Slow && !slices.Contains(quick, moment{kind, step}) {
				continue // the tests of package migrate kill a run after each operation
			}
			t.Run(string(kind)+" "+step, func(t *testing.T) {
				t.Parallel()
				r := newFreeRig(t, writingLab()).withStepwiseEvents()
				u := r.startWarmIdle("--cutover", "2026-01-01T00:00Z") // immediately
				u.untilEvent(kind, step)
				u.endWith(syscall.SIGKILL)
				r.startWarmIdle("--cutover", "2026-01-01T00:00Z").waitSuccess()
				r.checkMoved()
				r.checkNoRecords(0)
			})
		}
	}
}

// A run that is canceled at any moment restores the VM, by the decamp that executes the run or, if that was killed, by
// decamp cancel itself.
func TestWarmWithAFreeLicenceCanceled(t *testing.T) {
	t.Parallel()
	for _, at := range []moment{{journal.StepDone, "snapshot"}, {journal.DiskStarted, "round"}, {journal.StepStarted, "wait"}, {journal.StepDone, "power off"}, {journal.DiskStarted, "last round"}} {
		for _, killed := range []bool{false, true} {
			if !lane.Slow && (killed || at.step != "round") && (!killed || at.step != "power off") {
				continue // TestWarmCancel has the others with the API
			}
			t.Run(string(at.kind)+" "+at.step, func(t *testing.T) {
				t.Parallel()
				cfg := writingLab()
				cfg.NFC = lab.NFC{HostRate: 4e6} // a round takes seconds, so that the command arrives before its end
				r := newFreeRig(t, cfg)
				r.stepwise = killed
				u := r.startWarmIdle("--cutover", "2026-01-01T00:00Z")
				u.untilEvent(at.kind, at.step)
				if killed {
					u.endWith(syscall.SIGKILL)
					r.runOnSource("cancel", r.onlyRun()).wantExit(0).wantOutput("is discarded, and its images are removed", "use SSH (vim-cmd)")
					r.checkDiscarded()
					r.checkNoRecords(0)
					return
				}
				res := r.runOnSource("cancel", r.onlyRun())
				if !u.waitCanceled() { // the VM was published first
					r.checkMoved()
					return
				}
				res.wantExit(0)
				r.checkDiscarded()
				r.checkNoRecords(0)
			})
		}
	}
}

// decamp waits for transient failures of vim-cmd. After other failures the run ends, the VM keeps running without
// snapshots, and the same command continues.
func TestWarmWithAFreeLicenceFaults(t *testing.T) {
	t.Parallel()
	quiet := lab.Fault{Kind: lab.FaultVimCmdQuiet}
	for name, c := range map[string]struct {
		faults []lab.Fault
		passes bool
	}{
		"first snapshot":           {[]lab.Fault{{Kind: lab.FaultSnapshotCreate, Count: 1}}, false},
		"second snapshot, quietly": {[]lab.Fault{quiet, {Kind: lab.FaultSnapshotCreate, Count: 1, Skip: 1}}, false},
		"first removal":            {[]lab.Fault{{Kind: lab.FaultSnapshotRemove, Count: 1}}, false},
		"second removal, quietly":  {[]lab.Fault{quiet, {Kind: lab.FaultSnapshotRemove, Count: 1, Skip: 1}}, false},
		"busy":                     {[]lab.Fault{{Kind: lab.FaultVMBusy, Count: 3}}, true},
		"late":                     {[]lab.Fault{{Kind: lab.FaultVimCmdLate, Delay: lab.Duration(50 * time.Millisecond)}}, true},
	} {
		if !lane.Slow && !c.passes && name != "second removal, quietly" {
			continue // TestWarmSnapshotFaults has the others with the API
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFreeRig(t, writingLab())
			for _, f := range c.faults {
				_, err := r.lab.Faults().Add(f)
				must(t, err)
			}
			u := r.startWarm("--transport", "nfc")
			if !c.passes {
				if code := u.waitExit(); code != exitConflict {
					t.Fatalf("exit code %d, want that of a conflict: %s", code, u.stderr.String())
				}
				r.checkStillRuns()
				r.checkNoRecords(0)
				u = r.startWarm("--transport", "nfc")
			}
			u.waitRounds(2)
			r.cutOver(u)
			r.checkNoRecords(0)
			r.checkFaultsHappened()
		})
	}
}

// waitVimCmd waits until vim-cmd has received the command that many times and blocks. Later calls do not block.
func (r *rig) waitVimCmd(verb string, times int64) {
	r.t.Helper()
	for r.lab.Stats().VimCmd["vmsvc/"+verb] < times || len(r.lab.Faults().List()) > 0 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-r.t.Context().Done():
			r.t.Fatalf("timeout: vim-cmd did not receive %s %d times", verb, times)
		}
	}
}

// newStalledRig returns a rig whose vim-cmd blocks at a command until the test releases it.
func newStalledRig(t *testing.T, verb string, skip int) *rig {
	t.Helper()
	r := newFreeRig(t, writingLab())
	_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultVimCmdStall, Method: verb, Skip: skip, Count: 1})
	must(t, err)
	return r
}

// If the SSH connection ends while vim-cmd runs, vim-cmd executes its command only once. The run continues when SSH is
// available again.
func TestWarmWithAFreeLicenceLosesSSH(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"snapshot.create", "snapshot.remove"} {
		if !lane.Slow && verb == "snapshot.create" {
			continue // TestWarmWithAFreeLicenceKilledInVimCmd uses this command
		}
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			r := newStalledRig(t, verb, 1)
			u := r.startWarm("--transport", "nfc")
			r.waitVimCmd(verb, 2)
			s, before := r.openSession(), r.sourceVM("web01")
			must(t, r.lab.SetSSH(false))
			r.lab.DropSSH()
			r.lab.Faults().Release()
			for now := before; now.Snapshots == before.Snapshots; { // until vim-cmd has executed the command
				var err error
				now, err = s.VMByRef(t.Context(), before.Ref)
				must(t, err)
			}
			if n := r.lab.Stats().VimCmd["vmsvc/"+verb]; n != 2 {
				t.Errorf("vim-cmd received %s %d times, want 2", verb, n)
			}
			must(t, r.lab.SetSSH(true))
			u.waitRounds(2)
			r.cutOver(u)
			r.checkNoRecords(0)
		})
	}
}

// If decamp is killed while vim-cmd creates or removes a snapshot, vim-cmd continues. No snapshot remains when the run
// continues, is canceled or is cleaned up.
func TestWarmWithAFreeLicenceKilledInVimCmd(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"snapshot.create", "snapshot.remove"} {
		for _, then := range []string{"goes on", "given up", "cleaned"} {
			if !lane.Slow && (verb == "snapshot.remove") != (then == "goes on") {
				continue // each command once, with one of the ends
			}
			t.Run(verb+", "+then, func(t *testing.T) {
				t.Parallel()
				r := newStalledRig(t, verb, 0)
				u := r.startWarm("--transport", "nfc")
				r.waitVimCmd(verb, 1)
				u.endWith(syscall.SIGKILL)
				r.lab.Faults().Release()
				switch then {
				case "cleaned":
					r.runOnSource("clean", r.url()).wantExit(0).wantOutput("Reverted on host", "snapshot \"decamp ")
					r.checkStillRuns()
				case "given up":
					r.runOnSource("cancel", r.onlyRun()).wantExit(0)
					r.checkDiscarded()
				default:
					u := r.startWarm("--transport", "nfc")
					u.waitRounds(2)
					r.cutOver(u)
				}
				r.checkNoRecords(0)
			})
		}
	}
}

// A run that continues without SSH ends without changes and without new records. The same command continues when SSH is
// enabled.
func TestWarmWithAFreeLicenceContinuedWithoutSSH(t *testing.T) {
	t.Parallel()
	r := newFreeRig(t, writingLab())
	u := r.startWarmIdle()
	u.untilEvent(journal.StepStarted, "wait")
	u.endWith(syscall.SIGTERM)
	must(t, r.lab.SetSSH(false))
	u = r.startWarmIdle("--cutover", "2026-01-01T00:00Z")
	if code := u.waitExit(); code != exitDenied {
		t.Fatalf("exit code %d, want %d: %s", code, exitDenied, u.stderr.String())
	}
	r.checkStillRuns()
	r.checkNoRecords(0)
	must(t, r.lab.SetSSH(true))
	r.startWarmIdle("--cutover", "2026-01-01T00:00Z").waitSuccess()
	r.checkMoved()
}

// Without SSH, the remedy is to start SSH on the host, because --enable-ssh cannot work with a read-only API.
func TestPowerOffWithAFreeLicenceWithoutSSH(t *testing.T) {
	t.Parallel()
	r := newFreeRig(t, writingLab())
	must(t, r.lab.SetSSH(false))
	for _, consent := range [][]string{nil, {"--enable-ssh"}} {
		res := r.migrate("web01", append(consent, "--power-off")...).wantExit(exitDenied).wantOutput("licence (free ESXi)", "Remedy: start SSH on the host", "vim-cmd hostsvc/start_ssh")
		if contains(res.stderr, "--enable-ssh") {
			t.Errorf("with %q, the remedy cannot work: %s", consent, res.stderr)
		}
	}
	r.checkStillRuns()
}

// A cold migration with a free licence powers the VM off by SSH and reports that.
func TestPowerOffWithAFreeLicence(t *testing.T) {
	t.Parallel()
	r := newFreeRig(t, writingLab())
	r.migrate("web01", "--power-off").wantExit(0).wantOutput("use SSH (vim-cmd)", "is migrated and published")
	r.checkMoved()
	r.checkNoRecords(0)
}
