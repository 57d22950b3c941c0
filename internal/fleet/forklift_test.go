package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sched"
)

// These tests reproduce published problems of Forklift's scheduler in a whole fleet. Those of warm VMs are in
// commands_test.go, and the one of split plans is in simulate_test.go.

// A needsMover is a fakeMover whose test defines the needs of the VMs.
type needsMover struct {
	*fakeMover
	needs func(fleetdb.VM) []sched.Need
}

func (n needsMover) Needs(vm fleetdb.VM, _ fleetdb.TransferKind) ([]sched.Need, time.Duration) {
	return n.needs(vm), time.Minute
}

// A VM with more disks than the limit is moved while no other VM of the host is. In MTV-1573 it was never scheduled.
func TestVMWithMoreDisksThanTheLimitIsMoved(t *testing.T) {
	r := newTestFleet(t, nil)
	vms := vmsOn(30, 1)
	vms[15].Disks = 50
	m := newFakeMover(t, vms...)
	m.caps = map[string]int64{"host:*/disks": 8}
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(needsMover{m, func(v fleetdb.VM) []sched.Need {
		return []sched.Need{{Resource: "host:" + v.Host + "/disks", Weight: int64(v.Disks)}}
	}}, "w1"))
	if p := r.waitEnded("wave"); p.Counts[fleetdb.Done] != 30 {
		t.Errorf("the plan ended with %v", p.Counts)
	}
}

// A VM with invalid needs does not stop the others. In Forklift, a failed lookup for one VM failed the schedule of all.
func TestUnschedulableVMDoesNotStopOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(5, 1)...)
	r.submitPlan("wave")
	c := r.nodeConfig(needsMover{m, func(v fleetdb.VM) []sched.Need {
		if v.VM == "vm-3" {
			return []sched.Need{{Resource: "host:esx1/disks", Weight: 0}}
		}
		return nil
	}}, "w1")
	c.TTL = DefaultTTL // the scheduler ticks three times in that
	r.startNode(c)
	r.waitForVMs("wave", fleetdb.Done, 4)
	if why := r.waitReason("wave", "vm-3"); !strings.Contains(why, "0 of resource") {
		t.Errorf("the wait reason of vm-3 is %q", why)
	}
}

// waitReason returns why a VM waits, as the scheduler reports it.
func (r *testFleet) waitReason(plan, ref string) (why string) {
	r.Helper()
	r.waitUntil("the wait reason of "+ref, func() bool {
		for _, v := range r.planStatus(plan).VMs {
			if v.VM.VM == ref {
				why = v.Reason
			}
		}
		return why != ""
	})
	return why
}

// Users see why each VM waits. In MTV-5805 they could not.
func TestEveryWaitingVMHasAReason(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := newTestFleet(t, nil)
	vms := vmsOn(12, 1)
	vms[11].To = []string{"dir:/elsewhere"}
	m := newFakeMover(t, vms...)
	m.caps = map[string]int64{"host:*/vms": 2}
	held, _ := m.holdTransfers()
	r.submitPlan("wave")
	c := r.nodeConfig(m, "w1")
	c.TTL = DefaultTTL // the scheduler ticks three times in that
	r.startNode(c)
	receive(t, held)
	receive(t, held)
	r.sendCommand("wave/vm-11", fleetdb.Pause)
	r.waitUntil("all reasons", func() bool {
		s := r.planStatus("wave")
		seen := map[string]int{}
		for _, v := range s.VMs {
			seen[v.Reason]++
		}
		return seen["host esx1: 2 of 2 vms; next in less than a minute"]+seen["host esx1: 2 of 2 vms; next in about 1 min"] == 8 &&
			seen["it is paused"] == 1 && seen["no worker offers dir:/elsewhere"] == 1 && seen[""] == 2
	})
	snapshot := r.schedulerSnapshot()
	if len(snapshot.Waiting) != 10 {
		t.Fatalf("%d VMs wait, want 10", len(snapshot.Waiting))
	}
	for _, res := range snapshot.Resources {
		if strings.HasSuffix(res.Name, "/trials") || strings.HasSuffix(res.Name, "/logins") {
			t.Errorf("the snapshot contains the internal resource %s", res.Name)
		}
	}
}

// Plans run at the same time, and each VM is moved once. MTV-2775: three seconds passed between the plans of one
// provider. Forklift #2236: a running VM was started again when a slot became free. #6948: finished plans still
// used resources.
func TestManyPlansAtOnce(t *testing.T) {
	const plans = 40
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(5, 5)...)
	m.caps = map[string]int64{"host:*/vms": 8}
	for i := range plans {
		r.submitPlan(fmt.Sprintf("wave-%d", i))
	}
	r.startNode(r.nodeConfig(m, "w1"))
	for i := range plans {
		r.waitEnded(fmt.Sprintf("wave-%d", i))
	}
	if len(m.moves) != 5*plans {
		t.Errorf("%d VMs were moved, want %d", len(m.moves), 5*plans)
	}
	for key, n := range m.moves {
		if n != 1 {
			t.Errorf("%s was moved %d times, want 1", key, n)
		}
	}
	for host, n := range m.maxPerHost {
		if n > 8 {
			t.Errorf("%d concurrent transfers on %s, want at most 8", n, host)
		}
	}
}

// The limit of each host can be changed while transfers run. Forklift has one fixed limit for all hosts.
func TestLimitChangesTakeEffectAtRunTime(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(20, 2)...)
	m.caps = map[string]int64{"host:*/vms": 1}
	held, release := m.holdTransfers()
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	receive(t, held)
	receive(t, held)
	if err := r.db.Limits.Set(t.Context(), "host:esx1/vms", 4); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		receive(t, held)
	}
	m.mu.Lock()
	if m.maxPerHost["esx1"] != 4 || m.maxPerHost["esx2"] != 1 {
		t.Errorf("concurrent transfers: %v, want 4 on esx1 and 1 on esx2", m.maxPerHost)
	}
	m.mu.Unlock()
	if err := r.db.Limits.Set(t.Context(), "host:*/vms", 2); err != nil {
		t.Fatal(err)
	}
	receive(t, held)
	if err := r.db.Limits.Set(t.Context(), "host:esx1/vms", -1); err != nil {
		t.Fatal(err)
	}
	close(release)
	r.waitEnded("wave")
	if m.maxPerHost["esx1"] != 4 || m.maxPerHost["esx2"] != 2 {
		t.Errorf("concurrent transfers in the end: %v, want 4 on esx1 and 2 on esx2", m.maxPerHost)
	}
}

// The rows of the database contain the granted slots. The next scheduler counts them.
func TestNextSchedulerCountsGrantedSlots(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(10, 1)...)
	m.caps = map[string]int64{"host:*/vms": 3}
	held, release := m.holdTransfers()
	r.submitPlan("wave")
	r.startNode(r.withRoles(r.nodeConfig(m, "w1"), false, true))
	first := r.startNode(r.withRoles(r.nodeConfig(m, "s1"), true, false))
	for range 3 {
		receive(t, held)
	}
	second := r.withRoles(r.nodeConfig(m, "s2"), true, false)
	second.TTL = shortTTL
	r.startNode(second)
	first.end()
	close(release)
	r.waitEnded("wave")
	if n := m.maxPerHost["esx1"]; n > 3 {
		t.Errorf("%d concurrent transfers, want at most 3", n)
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
