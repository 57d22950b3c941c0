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

// The exit code of what is denied.
var denied = fault.ExitCode(fault.New(fault.Denied, ""))

// newFreeRig returns a host with a free licence. It accepts SSH logins, unless cfg disables them.
func newFreeRig(t *testing.T, cfg lab.Config) *rig {
	t.Helper()
	r := newRig(t, free(cfg)).trusting()
	_, port, err := net.SplitHostPort(r.lab.SSHAddr(""))
	must(t, err)
	r.extra = append(r.extra, "--ssh-port", port)
	return r
}

// nothingLeft checks that no change of the host is on record, and that the API was asked for
// so many snapshots in vain.
func (r *rig) nothingLeft(refused int64) {
	r.t.Helper()
	records, err := filepath.Glob(filepath.Join(r.state(), "leftovers", "*.json"))
	must(r.t, err)
	if len(records) > 0 {
		r.t.Errorf("on record: %v", records)
	}
	if n := r.lab.Stats().SOAP["CreateSnapshot_Task"]; n != refused {
		r.t.Errorf("the API was asked for %d snapshots, want %d", n, refused)
	}
}

// The API of a host with a free licence freezes and switches nothing; vim-cmd does, whether the
// licence has a name that is known or is found out by what it refuses.
func TestWarmWithAFreeLicence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edition string
		way     string
		refused int64
	}{
		"known, https": {"", "https", 0}, "known, nfc": {"", "nfc", 0}, "known, landing": {"", "landing", 0}, "unknown, nfc": {"esxNew", "nfc", 0},
	} {
		if !lane.Slow && strings.HasPrefix(name, "known") && c.way != "landing" {
			continue // as with an unknown licence
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := writing()
			cfg.LicenceEdition = c.edition
			args := ways(t, &cfg)[c.way]
			r := newFreeRig(t, cfg)
			u := r.warm(args...)
			warned := u.untilEvent(journal.Warned, "track")
			if w := warned.Warning; w == nil || w.Code != "no-change-tracking" || !strings.Contains(w.Text, "13 MiB, about 1s at 100 MiB/s") || !strings.Contains(w.Text, "in the outage") {
				t.Errorf("warned of %+v", warned.Warning)
			}
			u.rounds(1)
			var read, written int
			done := u.untilEvent(journal.RoundDone, "round").Message
			if _, err := fmt.Sscanf(done, "round 2: %d MiB read, %d MiB written", &read, &written); err != nil || written >= read || read >= 24 && c.way == "nfc" {
				t.Errorf("more was read than is allocated, or more written than differs: %s, %v", done, err)
			}
			r.cutOver(u)
			r.nothingLeft(c.refused)
			r.run("verify", r.vms()+"/web01").ends(0)
			if n := r.lab.Stats().VimCmd["vmsvc/snapshot.create"]; n < 2 {
				t.Errorf("%d snapshots by vim-cmd", n)
			}
		})
	}
}

// Change tracking from before the end of the licence continues: rounds read the changed areas. If the licence is
// unknown, the first snapshot shows it.
func TestWarmWithAFreeLicenceAndTracking(t *testing.T) {
	t.Parallel()
	cfg := writing()
	cfg.LicenceEdition, cfg.VMs[0].ChangeTracking, cfg.VMs[0].Guest.Writes.Rate = "esxNew", true, 0
	r := newFreeRig(t, cfg)
	u := r.warm("--transport", "nfc")
	u.rounds(1)
	must(t, r.lab.GuestWrites("web01", 3))
	var read int
	done := u.untilEvent(journal.RoundDone, "round").Message
	if _, err := fmt.Sscanf(done, "round 2: %d MiB read", &read); err != nil || read > 4 { // of 13 that are allocated
		t.Errorf("the second round did not read what changed: %s, %v", done, err)
	}
	r.run("cutover", r.onlyRun()).ends(0)
	u.succeeds()
	r.matchesSource(filepath.Join(r.vms(), "web01"), "raw")
	r.nothingLeft(1)
}

// Without SSH it is refused before anything is done, and the remedies work.
func TestWarmWithAFreeLicenceWithoutSSH(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edition string
		tracked bool
		step    string // that is refused
	}{
		"known":            {"", false, "prepare"},
		"unknown":          {"esxNew", false, "track"},
		"unknown, tracked": {"esxNew", true, "snapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := writing()
			cfg.LicenceEdition, cfg.VMs[0].ChangeTracking = c.edition, c.tracked
			r := newFreeRig(t, cfg)
			must(t, r.lab.SetSSH(false))
			for _, consent := range [][]string{nil, {"--enable-ssh"}} {
				res := r.migrate("web01", append(consent, "--warm", "--transport", "nfc")...).ends(denied).
					says("licence (free ESXi)", "SSH", "Remedy: ", "start_ssh", "shut the VM down", "without --warm", "paid licence")
				if contains(res.stderr, "--enable-ssh") {
					t.Errorf("the remedy cannot work, because the API is read-only: %s", res.stderr)
				}
				if contains(res.stderr, "no-change-tracking") {
					t.Errorf("it went on without change tracking: %s", res.stderr)
				}
			}
			if run := r.run("runs").ends(0); !contains(run.stdout, c.step) {
				t.Errorf("it was not refused at %s: %s", c.step, run.stdout)
			}
			r.untouched(c.tracked)
			must(t, r.lab.SetPower("web01", false)) // by hand, as was said
			if c.step != "prepare" {
				r.migrate("web01", "--transport", "https").ends(conflict).says("--discard")
				r.source("cancel", r.onlyRun()).ends(0)
			}
			if lane.Slow || c.step == "prepare" {
				r.migrate("web01", "--transport", "https").ends(0).says("is migrated and published")
			}
		})
	}
}

// untouched checks that the VM runs as before, and that no leftover is recorded.
func (r *rig) untouched(tracked bool) {
	r.t.Helper()
	vm := r.vm("web01")
	if vm.Power != inventory.PoweredOn || vm.Snapshots > 0 || vm.ChangeTracking != tracked {
		r.t.Errorf("the VM is %s with %d snapshots, tracking %v", vm.Power, vm.Snapshots, vm.ChangeTracking)
	}
	if told := r.lab.Stats().VimCmd; len(told) > 0 {
		r.t.Errorf("vim-cmd was told %v", told)
	}
	if left := r.run("runs").ends(0).stdout; contains(left, "snapshot \"") || contains(left, "SSH on") {
		r.t.Errorf("on record: %s", left)
	}
}

// Killed at any arrow, the same command goes on.
func TestWarmWithAFreeLicenceKilledAtEachStep(t *testing.T) {
	t.Parallel()
	quick := []moment{{journal.StepDone, "snapshot"}, {journal.StepDone, "power off"}} // what vim-cmd did is not on record
	for _, step := range []string{"prepare", "track", "snapshot", "round", "verify round", "wait", "power off", "last round", "verify", "commit", "restore"} {
		for _, kind := range []journal.EventKind{journal.StepStarted, journal.StepDone} {
			if !lane.Slow && !slices.Contains(quick, moment{kind, step}) {
				continue // the tests of package migrate kill a run after each operation
			}
			t.Run(string(kind)+" "+step, func(t *testing.T) {
				t.Parallel()
				r := newFreeRig(t, writing()).steps()
				u := r.resting("--cutover", "2026-01-01T00:00Z") // at once
				u.untilEvent(kind, step)
				u.end(syscall.SIGKILL)
				r.resting("--cutover", "2026-01-01T00:00Z").succeeds()
				r.moved()
				r.nothingLeft(0)
			})
		}
	}
}

// Given up at any arrow, by the decamp that drives it or by another after it was killed, the
// VM is as it was found.
func TestWarmWithAFreeLicenceGivenUp(t *testing.T) {
	t.Parallel()
	for _, at := range []moment{{journal.StepDone, "snapshot"}, {journal.DiskStarted, "round"}, {journal.StepStarted, "wait"}, {journal.StepDone, "power off"}, {journal.DiskStarted, "last round"}} {
		for _, killed := range []bool{false, true} {
			if !lane.Slow && (killed || at.step != "round") && (!killed || at.step != "power off") {
				continue // TestWarmCancel has others with the API
			}
			t.Run(string(at.kind)+" "+at.step, func(t *testing.T) {
				t.Parallel()
				cfg := writing()
				cfg.NFC = lab.NFC{HostRate: 4e6} // seconds for a round: the order comes before the end
				r := newFreeRig(t, cfg)
				r.stepwise = killed
				u := r.resting("--cutover", "2026-01-01T00:00Z")
				u.untilEvent(at.kind, at.step)
				if killed {
					u.end(syscall.SIGKILL)
					r.source("cancel", r.onlyRun()).ends(0).says("is discarded, and its images are removed", "use SSH (vim-cmd)")
					r.givenUp()
					r.nothingLeft(0)
					return
				}
				res := r.source("cancel", r.onlyRun())
				if !u.wasCanceled() { // the VM was published first
					r.moved()
					return
				}
				res.ends(0)
				r.givenUp()
				r.nothingLeft(0)
			})
		}
	}
}

// What goes wrong with vim-cmd: what passes is waited for; else the run ends with the VM
// running and nothing of ours on it, and the same command goes on.
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
			r := newFreeRig(t, writing())
			for _, f := range c.faults {
				_, err := r.lab.Faults().Add(f)
				must(t, err)
			}
			u := r.warm("--transport", "nfc")
			if !c.passes {
				if code := u.finished(); code != conflict {
					t.Fatalf("exit code %d, want that of a conflict: %s", code, u.screen.String())
				}
				r.stillRuns()
				r.nothingLeft(0)
				u = r.warm("--transport", "nfc")
			}
			u.rounds(2)
			r.cutOver(u)
			r.nothingLeft(0)
			r.faultsMet()
		})
	}
}

// asked waits until vim-cmd received that command so often and blocks. Later calls stay blocked.
func (r *rig) asked(verb string, times int64) {
	r.t.Helper()
	for r.lab.Stats().VimCmd["vmsvc/"+verb] < times || len(r.lab.Faults().List()) > 0 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-r.t.Context().Done():
			r.t.Fatalf("vim-cmd was never told %s", verb)
		}
	}
}

// stalled returns a rig whose vim-cmd does not execute the command until it is released.
func stalled(t *testing.T, verb string, skip int) *rig {
	t.Helper()
	r := newFreeRig(t, writing())
	_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultVimCmdStall, Method: verb, Skip: skip, Count: 1})
	must(t, err)
	return r
}

// The SSH connection and server end while vim-cmd runs, and return: vim-cmd has executed the command once.
func TestWarmWithAFreeLicenceLosesSSH(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"snapshot.create", "snapshot.remove"} {
		if !lane.Slow && verb == "snapshot.create" {
			continue // TestWarmWithAFreeLicenceKilledInVimCmd has one
		}
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			r := stalled(t, verb, 1)
			u := r.warm("--transport", "nfc")
			r.asked(verb, 2)
			s, before := r.session(), r.vm("web01")
			must(t, r.lab.SetSSH(false))
			r.lab.DropSSH()
			r.lab.Faults().Release()
			for now := before; now.Snapshots == before.Snapshots; { // it is done meanwhile
				var err error
				now, err = s.VMByRef(t.Context(), before.Ref)
				must(t, err)
			}
			if n := r.lab.Stats().VimCmd["vmsvc/"+verb]; n != 2 {
				t.Errorf("told %d times", n)
			}
			must(t, r.lab.SetSSH(true))
			u.rounds(2)
			r.cutOver(u)
			r.nothingLeft(0)
		})
	}
}

// decamp is killed while vim-cmd creates or removes a snapshot, which continues. The snapshot is neither left nor
// created twice, whether the run continues or is canceled.
func TestWarmWithAFreeLicenceKilledInVimCmd(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"snapshot.create", "snapshot.remove"} {
		for _, then := range []string{"goes on", "given up", "cleaned"} {
			if !lane.Slow && (verb == "snapshot.remove") != (then == "goes on") {
				continue // each end once
			}
			t.Run(verb+", "+then, func(t *testing.T) {
				t.Parallel()
				r := stalled(t, verb, 0)
				u := r.warm("--transport", "nfc")
				r.asked(verb, 1)
				u.end(syscall.SIGKILL)
				r.lab.Faults().Release()
				switch then {
				case "cleaned":
					r.source("clean", r.url()).ends(0).says("Reverted on host", "snapshot \"decamp ")
					r.stillRuns()
				case "given up":
					r.source("cancel", r.onlyRun()).ends(0)
					r.givenUp()
				default:
					u := r.warm("--transport", "nfc")
					u.rounds(2)
					r.cutOver(u)
				}
				r.nothingLeft(0)
			})
		}
	}
}

// SSH that is off when a run is continued ends it, with nothing done and nothing on record
// that was not; once it is on, the same command goes on.
func TestWarmWithAFreeLicenceContinuedWithoutSSH(t *testing.T) {
	t.Parallel()
	r := newFreeRig(t, writing())
	u := r.resting()
	u.untilEvent(journal.StepStarted, "wait")
	u.end(syscall.SIGTERM)
	must(t, r.lab.SetSSH(false))
	u = r.resting("--cutover", "2026-01-01T00:00Z")
	if code := u.finished(); code != denied {
		t.Fatalf("exit code %d, want that of what is denied: %s", code, u.screen.String())
	}
	r.stillRuns()
	r.nothingLeft(0)
	must(t, r.lab.SetSSH(true))
	r.resting("--cutover", "2026-01-01T00:00Z").succeeds()
	r.moved()
}

// Without SSH, the remedy is to start SSH on the host: the API is read-only, so --enable-ssh cannot.
func TestPowerOffWithAFreeLicenceWithoutSSH(t *testing.T) {
	t.Parallel()
	r := newFreeRig(t, writing())
	must(t, r.lab.SetSSH(false))
	for _, consent := range [][]string{nil, {"--enable-ssh"}} {
		res := r.migrate("web01", append(consent, "--power-off")...).ends(denied).says("licence (free ESXi)", "Remedy: start SSH on the host", "vim-cmd hostsvc/start_ssh")
		if contains(res.stderr, "--enable-ssh") {
			t.Errorf("with %q, the remedy cannot work: %s", consent, res.stderr)
		}
	}
	r.stillRuns()
}

// A cold migration also powers the VM off by SSH, and reports that.
func TestPowerOffWithAFreeLicence(t *testing.T) {
	t.Parallel()
	r := newFreeRig(t, writing())
	r.migrate("web01", "--power-off").ends(0).says("use SSH (vim-cmd)", "is migrated and published")
	r.moved()
	r.nothingLeft(0)
}
