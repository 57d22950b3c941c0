package cli

import (
	"encoding/json"
	"testing"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/lane"
)

// writingVCenter is writingLab as a vCenter with two hosts.
func writingVCenter() lab.Config {
	cfg := writingLab()
	cfg.VCenter = true
	return cfg
}

// atVCenter makes the rig log in to the lab as to a vCenter.
func (r *rig) atVCenter() *rig {
	r.login = "vcenter://administrator@vsphere.local@"
	return r
}

// moveVM moves the VM to another host, as vMotion does. If survive is false, it also ends the NFC sessions.
func (r *rig) moveVM(survive bool) {
	r.t.Helper()
	hosts, err := r.openSession().Hosts(r.t.Context())
	must(r.t, err)
	on := r.sourceVM("web01").Host
	for _, h := range hosts {
		if h.Ref != on {
			must(r.t, r.lab.MoveVM("web01", h.Name))
			break
		}
	}
	if r.sourceVM("web01").Host == on {
		r.t.Fatal("the VM did not move")
	}
	if !survive {
		r.lab.DropNFC()
	}
}

// A warm migration succeeds although vMotion moves the VM to another host between rounds, during a round or during the
// cutover.
func TestWarmVMotion(t *testing.T) {
	t.Parallel()
	for i, transport := range []string{"https", "nfc", "landing"} {
		for j, at := range []struct {
			name string
			moment
		}{
			{"taking a snapshot", moment{journal.StepStarted, "snapshot"}}, {"first round", moment{journal.DiskStarted, "round"}},
			{"reading back", moment{journal.StepStarted, "verify round"}}, {"waiting", moment{journal.StepStarted, "wait"}},
			{"powering off", moment{journal.StepStarted, "power off"}}, {"last round", moment{journal.DiskStarted, "last round"}},
			{"verify", moment{journal.StepStarted, "verify"}}, {"putting back", moment{journal.StepStarted, "restore"}},
		} {
			if !lane.Slow && ((i+j)%3 > 0 || at.name != "taking a snapshot" && at.name != "last round" && at.name != "putting back") {
				continue // each other moment once, with one of the transports
			}
			t.Run(transport+", "+at.name, func(t *testing.T) {
				t.Parallel()
				cfg := writingVCenter()
				args := transportFlags(t, &cfg)[transport]
				r := newRig(t, cfg).withFingerprint().atVCenter()
				u := r.startWarm(append(args, "--cutover", "2026-01-01T00:00Z")...)
				u.untilEvent(at.kind, at.step)
				r.moveVM(at.name == "reading back")
				u.waitSuccess()
				r.checkMoved()
			})
		}
	}
}

// After vMotion, decamp uses the address that the chosen interface has on the new host.
func TestWarmVMotionWithAChosenNetwork(t *testing.T) {
	t.Parallel()
	cfg := writingVCenter()
	cfg.NFC.Network = "127.0.0.2"
	r := newRig(t, cfg).withFingerprint().atVCenter()
	u := r.startWarm("--transport", "nfc", "--network", "vmk2")
	for range 3 {
		u.untilEvent(journal.StepStarted, "wait")
		r.moveVM(false)
		u.waitRounds(1)
	}
	r.run("cutover", r.onlyRun()).wantExit(0)
	u.waitSuccess()
	r.checkMoved()
}

// During vMotion a VM refuses snapshots and shutdowns. The run waits and tries again.
func TestWarmVMIsBusy(t *testing.T) {
	t.Parallel()
	for name, skip := range map[string]int{"for a snapshot": 0, "for its removal": 1, "for its shutdown": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, writingVCenter()).withFingerprint().atVCenter()
			_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultVMBusy, Skip: skip, Count: 2})
			must(t, err)
			u := r.startWarm("--transport", "nfc", "--cutover", "2026-01-01T00:00Z")
			for range 2 {
				if e := u.untilRetried(); e.Failure == nil || e.Failure.Kind != "transient" {
					t.Errorf("the step was retried after %+v, want a transient failure", e.Failure)
				}
			}
			u.waitSuccess()
			r.checkMoved()
		})
	}
}

// untilRetried reads events until a step is retried.
func (u *migration) untilRetried() journal.Event {
	u.t.Helper()
	for u.events.Scan() {
		var o struct{ Event journal.Event }
		must(u.t, json.Unmarshal(u.events.Bytes(), &o))
		if o.Event.Kind == journal.StepRetried {
			return o.Event
		}
	}
	u.t.Fatal("the migration ended without a retry")
	return journal.Event{}
}
