package sched

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// These tests reproduce published problems of Forklift's scheduler.

// oneHost returns a simulation for the tests of host esx1. It also has host esx2.
func oneHost(t *testing.T, vms int64) *sim {
	return newSim(t, map[string]int64{"host:esx1/vms": vms, "host:esx1/disks": 8, "host:esx2/vms": vms})
}

func vmOn(host, plan string, i int, length time.Duration) Request {
	return Request{Run: fmt.Sprintf("%s-%s-%d", plan, host, i), Plan: plan, Needs: needs("host:"+host+"/vms", 1), Expected: length}
}

// Warm runs beyond the limit start after the first copies of others. In MTV-1543 they did not start until others were
// cut over.
func TestWarmRunsBeyondTheLimitStartAfterFirstCopies(t *testing.T) {
	m := oneHost(t, 4)
	rounds := map[string]int{}
	for i := range 20 {
		m.submit(vmOn("esx1", "warm", i, 10*time.Minute))
	}
	m.after = func(run string) { // requests the next round; no slot is held between rounds
		name, _, _ := strings.Cut(run, "/")
		if rounds[name]++; rounds[name] < 4 {
			q := vmOn("esx1", "warm", 0, time.Minute)
			q.Run, q.Kind = fmt.Sprintf("%s/round%d", name, rounds[name]), Again
			m.submit(q)
		}
	}
	m.runUntil(epoch.Add(3 * time.Hour))
	for i := range 20 {
		if name := fmt.Sprintf("warm-esx1-%d", i); m.ended[name].IsZero() {
			t.Errorf("%s was not copied in 3 hours", name)
		}
	}
}

// A VM with more disks than the limit runs alone. In MTV-1573 it was never scheduled.
func TestVMWithMoreDisksThanTheLimitRunsAlone(t *testing.T) {
	m := oneHost(t, 20)
	for i := range 200 {
		m.submit(Request{Run: fmt.Sprint("small", i), Plan: "p", Needs: needs("host:esx1/disks", 1), Expected: 10 * time.Minute})
	}
	m.decide()
	m.submit(Request{Run: "large", Plan: "q", Needs: needs("host:esx1/disks", 50), Expected: 5 * time.Minute})
	m.run()
	for run, begun := range m.begun {
		if run != "large" && begun.Before(m.ended["large"]) && m.ended[run].After(m.begun["large"]) {
			t.Fatalf("%s ran at the same time as the large VM", run)
		}
	}
	if waited := m.begun["large"].Sub(epoch); waited > 3*10*time.Minute+DefaultReserveAfter {
		t.Errorf("the large VM waited %v for the small ones", waited)
	}
}

// A freed slot starts no run that already runs. In Forklift #2236 and MTV-2973, running copies were started again when
// a slot became free.
func TestFreedSlotDoesNotRestartRunningRuns(t *testing.T) {
	m := oneHost(t, 2)
	for i := range 6 {
		m.submit(vmOn("esx1", "p", i, time.Duration(6-i)*time.Hour))
	}
	m.decide()
	for _, q := range m.requests { // a reconcile loop repeats its requests
		if err := m.s.Submit(m.now, q); err != nil {
			t.Fatal(err)
		}
	}
	m.run() // fails if a run is granted twice
}

// A slot is held only during the transfer. In MTV-6021 it was held until the end of the conversion.
func TestSlotIsHeldForExactlyTheTransfer(t *testing.T) {
	m := oneHost(t, 1)
	m.submit(vmOn("esx1", "p", 0, time.Hour), vmOn("esx1", "p", 1, time.Minute))
	m.decide()
	m.now = m.now.Add(time.Hour)
	m.s.Release("p-esx1-0") // the copy has ended, and the conversion needs no slot
	if got := m.decide(); len(got) != 1 || got[0] != "p-esx1-1" {
		t.Errorf("granted %v at the end of the copy, want p-esx1-1", got)
	}
}

// Every waiting run has a reason. In MTV-5805 users could not see why a VM waits.
func TestEveryWaitingRunHasAReason(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	f := fleet{hosts: 3, datastores: 2}
	m := newSim(t, f.capacities())
	for i := range 500 {
		m.submit(f.randomVM(rng, "p", i))
	}
	m.decide()
	snap := m.s.Snapshot()
	for _, w := range snap.Waiting {
		if w.Reason != Full || len(w.Blocks) == 0 || w.Blocks[0].Free.IsZero() {
			t.Fatalf("no reason for %+v", w)
		}
	}
	if len(snap.Waiting) < 300 {
		t.Fatalf("%d runs wait, want at least 300", len(snap.Waiting))
	}
}

// All plans begin in one decision. In MTV-2775 three seconds passed between the plans of one provider.
func TestAllPlansBeginInOneDecision(t *testing.T) {
	m := oneHost(t, 20)
	for p := range 20 {
		for i := range 100 {
			m.submit(vmOn("esx1", fmt.Sprint("p", p), i, time.Hour))
		}
	}
	plans := map[string]bool{}
	for _, g := range m.s.Decide(m.now) {
		plans[g.Plan] = true
	}
	if len(plans) != 20 {
		t.Errorf("%d plans began, want 20", len(plans))
	}
}

// Finished plans use no memory. In Forklift #6948, finished plans still used resources.
func TestFinishedPlansUseNoMemory(t *testing.T) {
	o := newOracle(t, noReservation)
	o.setCapacity("host:esx1/vms", 50)
	for p := range 2000 {
		if err := o.s.Submit(o.now, vmOn("esx1", fmt.Sprint("p", p), 0, time.Hour)); err != nil {
			t.Fatal(err)
		}
		for _, g := range o.s.Decide(o.now) {
			o.s.Release(g.Run)
		}
	}
	o.checkEmpty()
	if len(o.s.registry.plans) != 0 {
		t.Errorf("%d plans are left, want 0", len(o.s.registry.plans))
	}
}

// The capacity of each host can be changed while transfers run. Forklift has one global limit, of VMs or of disks.
func TestHostCapacityChangesAtRunTime(t *testing.T) {
	m := newSim(t, map[string]int64{"host:esx1/vms": 2, "host:esx2/vms": 5})
	for i := range 20 {
		m.submit(vmOn("esx1", "p", i, time.Hour), vmOn("esx2", "p", i, time.Hour))
	}
	count := func() (n [3]int) {
		for _, run := range m.decide() {
			n[run[len("p-esx")]-'0']++
		}
		return n
	}
	if n := count(); n != [3]int{0, 2, 5} {
		t.Fatalf("granted %v, want 2 on esx1 and 5 on esx2", n)
	}
	m.s.SetCapacity("host:esx1/vms", 6)
	m.s.SetCapacity("host:esx2/vms", 3)
	if n := count(); n != [3]int{0, 4, 0} {
		t.Fatalf("granted %v after the change, want 4 on esx1", n)
	}
	for i := range 5 {
		if run := fmt.Sprintf("p-esx2-%d", i); !m.s.HasGrant(run) {
			t.Errorf("%s lost its slot when the limit of its host was lowered", run)
		}
	}
	m.s.Release("p-esx2-0")
	m.s.Release("p-esx2-1")
	if n := count(); n != [3]int{} {
		t.Fatalf("granted %v while esx2 is at its limit", n)
	}
}

// An invalid request does not affect other requests. In Forklift, a failed lookup for one VM failed the schedule of
// all.
func TestInvalidRequestDoesNotAffectOthers(t *testing.T) {
	m := oneHost(t, 2)
	bad := vmOn("esx9", "p", 1, time.Hour)
	if err := m.s.Submit(m.now, vmOn("esx1", "p", 0, time.Hour), bad, vmOn("esx1", "p", 2, time.Hour)); err == nil {
		t.Error("an unknown resource was accepted")
	}
	if grants := m.s.Decide(m.now); len(grants) != 2 {
		t.Errorf("granted %v, want both valid requests", grants)
	}
}

// One plan is as fast as eight plans with the same VMs. In MTV, 500 VMs in one plan took 5 h 10 min, and 800 VMs
// in eight plans took 57 min.
func TestOnePlanIsAsFastAsEight(t *testing.T) {
	makespan := func(plans int) time.Duration {
		rng := rand.New(rand.NewPCG(8, 8))
		f := fleet{hosts: 8, datastores: 8}
		m := newSim(t, f.capacities())
		for i := range 800 {
			q := f.randomVM(rng, "p", i)
			q.Plan = fmt.Sprint("p", i%plans)
			m.submit(q)
		}
		return m.run()
	}
	one, eight := makespan(1), makespan(8)
	t.Logf("800 VMs on 8 hosts: one plan %v, eight plans %v", one, eight)
	if one > eight*103/100 {
		t.Errorf("one plan takes %v, eight plans take %v", one, eight)
	}
}

// A run that cannot begin blocks no other run. In the prototype of decamp, a dead run at the head of the queue blocked
// all others.
func TestBlockedRunDoesNotBlockOthers(t *testing.T) {
	m := oneHost(t, 1)
	m.submit(vmOn("esx1", "p", 0, 9*time.Hour), vmOn("esx1", "p", 1, time.Hour))
	m.s.PauseRun("p-esx1-0")
	if got := m.decide(); len(got) != 1 || got[0] != "p-esx1-1" {
		t.Errorf("granted %v after a paused run", got)
	}
	m.finish("p-esx1-1")
	m.s.ResumeRun("p-esx1-0")
	m.s.Release("p-esx1-0") // removed from the queue
	m.submit(vmOn("esx1", "p", 2, time.Minute))
	if got := m.decide(); len(got) != 1 || got[0] != "p-esx1-2" {
		t.Errorf("granted %v after a removed run", got)
	}
}

// The slots of a worker are a resource, which is granted together with the others. The prototype had a separate limit
// of workers, which was used up by runs that waited in the scheduler.
func TestWorkersAreResourcesLikeOthers(t *testing.T) {
	m := newSim(t, map[string]int64{"host:esx1/vms": 1, "host:esx2/vms": 1, "worker:w/runs": 2})
	for i := range 3 {
		q := vmOn("esx1", "p", i, time.Hour)
		q.Needs = append(q.Needs, Need{"worker:w/runs", 1})
		m.submit(q)
	}
	last := vmOn("esx2", "p", 9, time.Minute)
	last.Needs = append(last.Needs, Need{"worker:w/runs", 1})
	m.submit(last)
	if got := m.decide(); len(got) != 2 {
		t.Errorf("granted %v, want one run on each host", got)
	}
}
