package cli

import (
	"encoding/json"
	"testing"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/lane"
)

// centre is writing at a vCenter of two hosts.
func centre() lab.Config {
	cfg := writing()
	cfg.VCenter = true
	return cfg
}

// atVCenter logs in to the lab as a vCenter.
func (r *rig) atVCenter() *rig {
	r.login = "vcenter://administrator@vsphere.local@"
	return r
}

// moves moves the VM to another host, as vMotion does. Sessions that go on are cut, too,
// where they are not to survive it.
func (r *rig) moves(survive bool) {
	r.t.Helper()
	hosts, err := r.session().Hosts(r.t.Context())
	must(r.t, err)
	on := r.vm("web01").Host
	for _, h := range hosts {
		if h.Ref != on {
			must(r.t, r.lab.MoveVM("web01", h.Name))
			break
		}
	}
	if r.vm("web01").Host == on {
		r.t.Fatal("it did not move")
	}
	if !survive {
		r.lab.DropNFC()
	}
}

// A VM that moves to another host, between rounds, in the middle of one, and while it is cut
// over, is moved all the same.
func TestWarmVMotion(t *testing.T) {
	t.Parallel()
	for i, way := range []string{"https", "nfc", "landing"} {
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
				continue // others once, with one of the transports
			}
			t.Run(way+", "+at.name, func(t *testing.T) {
				t.Parallel()
				cfg := centre()
				args := ways(t, &cfg)[way]
				r := newRig(t, cfg).trusting().atVCenter()
				u := r.warm(append(args, "--cutover", "2026-01-01T00:00Z")...)
				u.untilEvent(at.kind, at.step)
				r.moves(at.name == "reading back")
				u.succeeds()
				r.moved()
			})
		}
	}
}

// The interface that was chosen is the new host's once the VM is there: each host has an
// address of its own for it.
func TestWarmVMotionWithAChosenNetwork(t *testing.T) {
	t.Parallel()
	cfg := centre()
	cfg.NFC.Network = "127.0.0.2"
	r := newRig(t, cfg).trusting().atVCenter()
	u := r.warm("--transport", "nfc", "--network", "vmk2")
	for range 3 {
		u.untilEvent(journal.StepStarted, "wait")
		r.moves(false)
		u.rounds(1)
	}
	r.run("cutover", r.onlyRun()).ends(0)
	u.succeeds()
	r.moved()
}

// During vMotion a VM refuses snapshots and shutdowns. The run waits.
func TestWarmVMIsBusy(t *testing.T) {
	t.Parallel()
	for name, skip := range map[string]int{"for a snapshot": 0, "for its removal": 1, "for its shutdown": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, centre()).trusting().atVCenter()
			_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultVMBusy, Skip: skip, Count: 2})
			must(t, err)
			u := r.warm("--transport", "nfc", "--cutover", "2026-01-01T00:00Z")
			for range 2 {
				if e := u.untilRetried(); e.Failure == nil || e.Failure.Kind != "transient" {
					t.Errorf("tried again for %+v", e.Failure)
				}
			}
			u.succeeds()
			r.moved()
		})
	}
}

// untilRetried reads events until something is tried again.
func (u *under) untilRetried() journal.Event {
	u.t.Helper()
	for u.events.Scan() {
		var o struct{ Event journal.Event }
		must(u.t, json.Unmarshal(u.events.Bytes(), &o))
		if o.Event.Kind == journal.StepRetried {
			return o.Event
		}
	}
	u.t.Fatal("the migration ended without trying anything again")
	return journal.Event{}
}
