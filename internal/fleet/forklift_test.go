package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sched"
)

// The published troubles of Forklift's scheduler, as they would look in a whole fleet: those
// of warm VMs are in orders_test.go, that of splitting plans in simulate_test.go.

// needing is a mover whose VMs need what a test says.
type needing struct {
	*mover
	of func(fleetdb.VM) []sched.Need
}

func (n needing) Needs(vm fleetdb.VM, _ fleetdb.TransferKind) ([]sched.Need, time.Duration) {
	return n.of(vm), time.Minute
}

// MTV-1573: a VM with more disks than the limit was never scheduled. It goes alone.
func TestVMWithMoreDisksThanTheLimitGoes(t *testing.T) {
	r := newRig(t, nil)
	vms := vmsOn(30, 1)
	vms[15].Disks = 50
	m := newMover(t, vms...)
	m.caps = map[string]int64{"host:*/disks": 8}
	r.submit("wave")
	r.start(r.config(needing{m, func(v fleetdb.VM) []sched.Need {
		return []sched.Need{{Resource: "host:" + v.Host + "/disks", Weight: int64(v.Disks)}}
	}}, "w1"))
	if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != 30 {
		t.Errorf("ended with %v", p.Counts)
	}
}

// A look-up that failed for one VM failed the schedule of all.
func TestVMThatCannotBeScheduledHarmsNobodyElse(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(5, 1)...)
	r.submit("wave")
	c := r.config(needing{m, func(v fleetdb.VM) []sched.Need {
		if v.VM == "vm-3" {
			return []sched.Need{{Resource: "host:esx1/disks", Weight: 0}}
		}
		return nil
	}}, "w1")
	c.TTL = DefaultTTL // the board is looked at three times in that
	r.start(c)
	r.waitFor("wave", fleetdb.Done, 4)
	if why := r.why("wave", "vm-3"); !strings.Contains(why, "0 of resource") {
		t.Errorf("it waits for %q", why)
	}
}

// why returns why a VM waits, by the board.
func (r *rig) why(plan, ref string) (why string) {
	r.Helper()
	r.wait("the board", func() bool {
		for _, v := range r.status(plan).VMs {
			if v.VM.VM == ref {
				why = v.Reason
			}
		}
		return why != ""
	})
	return why
}

// MTV-5805: users could not see why a VM waits.
func TestEveryVMThatWaitsSaysWhy(t *testing.T) {
	r := newRig(t, nil)
	vms := vmsOn(12, 1)
	vms[11].To = []string{"dir:/elsewhere"}
	m := newMover(t, vms...)
	m.caps = map[string]int64{"host:*/vms": 2}
	held, _ := m.hold()
	r.submit("wave")
	c := r.config(m, "w1")
	c.TTL = DefaultTTL // the board is looked at three times in that
	r.start(c)
	next(t, held)
	next(t, held)
	r.order("wave/vm-11", fleetdb.Pause)
	r.wait("all reasons", func() bool {
		s := r.status("wave")
		seen := map[string]int{}
		for _, v := range s.VMs {
			seen[v.Reason]++
		}
		return seen["host esx1: 2 of 2 vms; next in less than a minute"]+seen["host esx1: 2 of 2 vms; next in about 1 min"] == 8 &&
			seen["it is paused"] == 1 && seen["no worker offers dir:/elsewhere"] == 1 && seen[""] == 2
	})
	snapshot := r.snapshot()
	if len(snapshot.Waiting) != 10 {
		t.Fatalf("%d VMs wait", len(snapshot.Waiting))
	}
	for _, res := range snapshot.Resources {
		if strings.HasSuffix(res.Name, "/trials") || strings.HasSuffix(res.Name, "/logins") {
			t.Errorf("%s is nobody's business", res.Name)
		}
	}
}

// MTV-2775: three seconds went by between the plans of one provider. Forklift #2236: what was
// under way was begun again when a slot came free. #6948: finished plans went on costing.
func TestManyPlansAtOnce(t *testing.T) {
	const plans = 40
	r := newRig(t, nil)
	m := newMover(t, vmsOn(5, 5)...)
	m.caps = map[string]int64{"host:*/vms": 8}
	for i := range plans {
		r.submit(fmt.Sprintf("wave-%d", i))
	}
	r.start(r.config(m, "w1"))
	for i := range plans {
		r.waitEnded(fmt.Sprintf("wave-%d", i))
	}
	if len(m.moves) != 5*plans {
		t.Errorf("%d VMs were moved", len(m.moves))
	}
	for key, n := range m.moves {
		if n != 1 {
			t.Errorf("%s was begun %d times", key, n)
		}
	}
	for host, n := range m.most {
		if n > 8 {
			t.Errorf("%d at a time on %s", n, host)
		}
	}
}

// One number for all hosts, fixed: here each host has its own, changed while all runs.
func TestLimitsAreLive(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(20, 2)...)
	m.caps = map[string]int64{"host:*/vms": 1}
	held, letGo := m.hold()
	r.submit("wave")
	r.start(r.config(m, "w1"))
	next(t, held)
	next(t, held)
	if err := r.db.Limits.Set(t.Context(), "host:esx1/vms", 4); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		next(t, held)
	}
	m.mu.Lock()
	if m.most["esx1"] != 4 || m.most["esx2"] != 1 {
		t.Errorf("at a time: %v", m.most)
	}
	m.mu.Unlock()
	if err := r.db.Limits.Set(t.Context(), "host:*/vms", 2); err != nil {
		t.Fatal(err)
	}
	next(t, held)
	if err := r.db.Limits.Set(t.Context(), "host:esx1/vms", -1); err != nil {
		t.Fatal(err)
	}
	close(letGo)
	r.waitEnded("wave")
	if m.most["esx1"] != 4 || m.most["esx2"] != 2 {
		t.Errorf("at a time in the end: %v", m.most)
	}
}

// What is held is in the rows: the next scheduler counts it, and goes on.
func TestNextSchedulerKnowsWhatIsHeld(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(10, 1)...)
	m.caps = map[string]int64{"host:*/vms": 3}
	held, letGo := m.hold()
	r.submit("wave")
	r.start(r.only(r.config(m, "w1"), false, true))
	first := r.start(r.only(r.config(m, "s1"), true, false))
	for range 3 {
		next(t, held)
	}
	second := r.only(r.config(m, "s2"), true, false)
	second.TTL = short
	r.start(second)
	first.end()
	close(letGo)
	r.waitEnded("wave")
	if n := m.most["esx1"]; n > 3 {
		t.Errorf("%d at a time, of 3", n)
	}
}

func TestStatusCountsAndEstimates(t *testing.T) {
	s := Status{}
	vms := []fleetdb.VM{
		{Key: fleetdb.Key{VM: "a"}, Bytes: 100, State: fleetdb.Done},
		{Key: fleetdb.Key{VM: "b"}, Bytes: 100, State: fleetdb.Running},
		{Key: fleetdb.Key{VM: "c"}, Bytes: 100, State: fleetdb.Queued, NotBefore: time.Unix(3600, 0), Failure: &fleetdb.Failure{Text: "no route"}},
		{Key: fleetdb.Key{VM: "d"}, Bytes: 100, State: fleetdb.Canceled},
		{Key: fleetdb.Key{VM: "e"}, Bytes: 100, State: fleetdb.Failed, Failure: &fleetdb.Failure{Text: "damaged"}},
	}
	s.fillVMs(vms, []fleetdb.Progress{{Key: fleetdb.Key{VM: "b"}, Total: 200, Done: 50, Read: 20, Rate: 25}}, map[string]string{"e": "old"})
	if s.Total != 500 || s.Done != 150 || s.Rate != 25 || s.Moved != 20 || s.Left != 7*time.Second {
		t.Errorf("total %d, done %d, moved %d, rate %d, left %v", s.Total, s.Done, s.Moved, s.Rate, s.Left)
	}
	var why []string
	for _, v := range s.VMs {
		why = append(why, v.Reason)
	}
	if got := strings.Join(why, "|"); got != "||next attempt at 01:00:00 UTC: no route||damaged" {
		t.Errorf("reasons %q", got)
	}
}
