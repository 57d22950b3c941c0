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

// Exit codes.
var (
	canceled = fault.ExitCode(fault.New(fault.Canceled, ""))
	conflict = fault.ExitCode(fault.New(fault.Conflict, ""))
	full     = fault.ExitCode(fault.New(fault.Full, ""))
)

// resting is writing, with rounds an hour apart: after the first the run waits.
func (r *rig) resting(more ...string) *under {
	r.t.Helper()
	return r.begin("web01", append([]string{"--warm", "--transport", "nfc"}, more...)...)
}

// session opens a separate session with the host.
func (r *rig) session() *esx.Session {
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

// stillRuns checks that a run that failed left the VM running and without snapshots of ours.
func (r *rig) stillRuns() {
	r.t.Helper()
	if vm := r.vm("web01"); vm.Snapshots > 0 || vm.ConsolidationNeeded || vm.Power != inventory.PoweredOn {
		r.t.Errorf("the VM has %d snapshots, consolidation needed %v, is %s", vm.Snapshots, vm.ConsolidationNeeded, vm.Power)
	}
	if left, err := os.ReadDir(filepath.Join(r.vms(), "web01")); err == nil {
		r.t.Errorf("published: %v", left)
	}
}

// cutOver orders it and waits for the end.
func (r *rig) cutOver(u *under) {
	r.t.Helper()
	r.run("cutover", r.onlyRun()).ends(0)
	u.succeeds()
	r.moved()
}

// What goes wrong with snapshots: the run ends, with the VM running and nothing of ours on
// it, and the same command goes on. What only stays to be merged is merged.
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
			continue // of the first snapshot, as of the second one
		}
		t.Run(string(f.fault.Kind), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, writing()).trusting()
			_, err := r.lab.Faults().Add(f.fault)
			must(t, err)
			u := r.warm("--transport", "nfc")
			if !f.passes {
				if code := u.finished(); code == 0 {
					t.Fatal("it went on")
				}
				r.stillRuns()
				u = r.warm("--transport", "nfc")
				u.rounds(1)
			} else {
				u.rounds(2)
			}
			r.cutOver(u)
			r.faultsMet()
		})
	}
}

// Another user changes the VM of a waiting run; the table has the result of the cutover.
func TestWarmMeddledWith(t *testing.T) {
	t.Parallel()
	for name, meddle := range map[string]func(r *rig) (mend func()){
		"session ended":    func(r *rig) func() { r.lab.KillSessions(); return nil },
		"host restarted":   func(r *rig) func() { must(r.t, r.lab.Restart()); return nil },
		"change ids reset": func(r *rig) func() { must(r.t, r.lab.ResetCBT("web01")); return nil },
		"tracking off": func(r *rig) func() {
			must(r.t, r.session().TrackChanges(r.t.Context(), r.vm("web01").Ref, false))
			return nil
		},
		"powered off": func(r *rig) func() { must(r.t, r.lab.SetPower("web01", false)); return nil },
		"snapshot of others": func(r *rig) func() {
			s, vm := r.session(), r.vm("web01").Ref
			ref, err := s.CreateSnapshot(r.t.Context(), vm, esx.SnapshotSpec{Name: "before the update"})
			must(r.t, err)
			return func() { must(r.t, s.RemoveSnapshot(r.t.Context(), vm, ref, nil)) }
		},
	} {
		if !lane.Slow && (name == "session ended" || name == "change ids reset") {
			continue // as after a restart of the host; as without tracking
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, writing()).trusting()
			u := r.resting()
			u.untilEvent(journal.StepStarted, "wait")
			mend := meddle(r)
			r.run("cutover", r.onlyRun()).ends(0)
			if mend != nil { // refused, before the outage
				if code := u.finished(); code != conflict {
					t.Fatalf("exit code %d, want that of a conflict", code)
				}
				if vm := r.vm("web01"); vm.Power != inventory.PoweredOn || vm.Snapshots != 1 {
					t.Errorf("the VM is %s with %d snapshots", vm.Power, vm.Snapshots)
				}
				mend()
				u = r.resting()
			}
			u.succeeds()
			r.moved()
		})
	}
}

// A snapshot that another user removes during a round is replaced.
func TestWarmSnapshotRemovedInTheMiddle(t *testing.T) {
	t.Parallel()
	cfg := writing()
	cfg.NFC = lab.NFC{HostRate: 1e6} // many seconds for the first round
	r := newRig(t, cfg).trusting()
	u := r.warm("--transport", "nfc")
	u.until(2 << 20)
	s, vm := r.session(), r.vm("web01").Ref
	ref, found, err := s.FindSnapshot(t.Context(), vm, "decamp "+r.onlyRun()+" 1")
	if err != nil || !found {
		t.Fatalf("found %v, %v", found, err)
	}
	must(t, s.RemoveSnapshot(t.Context(), vm, ref, nil))
	must(t, r.lab.SetNFC(lab.NFC{}))
	u.rounds(2)
	r.cutOver(u)
}

// givenUp checks that no trace of the run remains.
func (r *rig) givenUp() {
	r.t.Helper()
	r.asFound(inventory.PoweredOn)
	left, err := os.ReadDir(r.vms())
	must(r.t, err)
	runs, err := journal.NewStore(r.state()).Runs()
	if must(r.t, err); len(left) > 0 || len(runs) > 0 {
		r.t.Errorf("left: %v, runs %v", left, runs)
	}
}

// A target that fills up in the outage ends the run. With room the same command goes on; or
// it is given up, and the VM runs again.
func TestWarmTargetFullAtCutover(t *testing.T) {
	t.Parallel()
	for _, then := range []string{"room is made", "given up"} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			cfg := writing()
			cfg.VMs[0].Guest.Writes.Rate = 0
			r := newRig(t, cfg).trusting()
			mount(t, r.vms(), "size=100m")
			u := r.resting()
			u.untilEvent(journal.StepStarted, "wait")
			filler := filepath.Join(r.vms(), "filler")
			fill(t, filler)
			must(t, r.lab.GuestWrites("web01", 400))
			r.run("cutover", r.onlyRun()).ends(0)
			if code := u.finished(); code != full {
				t.Fatalf("exit code %d, want that of no space: %s", code, u.screen.String())
			}
			if vm := r.vm("web01"); vm.Power != inventory.PoweredOff {
				t.Errorf("the VM is %s", vm.Power)
			}
			must(t, os.Remove(filler))
			if then == "given up" {
				r.source("cancel", r.onlyRun()).ends(0)
				r.givenUp()
				return
			}
			r.resting().succeeds()
			r.moved()
		})
	}
}

// Given up at any moment, by the decamp that drives it or by another after it was killed, the
// VM is as it was found.
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
				r := newRig(t, writing()).trusting()
				r.stepwise = killed
				u := r.resting("--cutover", "2026-01-01T00:00Z") // at once
				if name == "waiting" {
					u.end(syscall.SIGKILL)
					u = r.resting()
				}
				u.untilEvent(at.kind, at.step)
				if killed {
					u.end(syscall.SIGKILL)
					r.source("cancel", r.onlyRun()).ends(0).says("is discarded, and its images are removed")
					r.givenUp()
					return
				}
				res := r.source("cancel", r.onlyRun())
				if !u.wasCanceled() { // the VM was published first
					r.moved()
					return
				}
				res.ends(0)
				r.givenUp()
			})
		}
	}
}

// Change tracking omits a changed area: --paranoid finds and reports it.
func TestWarmParanoid(t *testing.T) {
	t.Parallel()
	cfg := writing()
	cfg.VMs[0].Guest.Writes.Spread = 100
	r := newRig(t, cfg).trusting()
	_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultCBTLose})
	must(t, err)
	u := r.resting("--paranoid")
	u.untilEvent(journal.StepStarted, "wait")
	must(t, r.lab.GuestWrites("web01", 200))
	r.run("cutover", r.onlyRun()).ends(0)
	warned := u.untilEvent(journal.Warned, "last round")
	if warned.Warning == nil || warned.Warning.Code != "changes-missed" {
		t.Errorf("warned of %+v", warned.Warning)
	}
	u.succeeds()
	r.moved()
}
