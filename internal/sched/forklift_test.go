package sched

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// The published troubles of Forklift's scheduler, one by one, as they would look here.

func oneHost(t *testing.T, vms int64) *sim {
	return newSim(t, map[string]int64{"host:esx1/vms": vms, "host:esx1/disks": 8, "host:esx2/vms": vms})
}

func vmOn(host, plan string, i int, length time.Duration) Request {
	return Request{Run: fmt.Sprintf("%s-%s-%d", plan, host, i), Plan: plan, Needs: needs("host:"+host+"/vms", 1), Expected: length}
}

// MTV-1543: warm VMs beyond the limit did not start until others were cut over.
func TestWarmRunsBeyondTheLimitStartAfterFirstCopies(t *testing.T) {
	m := oneHost(t, 4)
	rounds := map[string]int{}
	for i := range 20 {
		m.ask(vmOn("esx1", "warm", i, 10*time.Minute))
	}
	m.after = func(run string) { // an hour of nothing would do as well: no slot is held between rounds
		name, _, _ := strings.Cut(run, "/")
		if rounds[name]++; rounds[name] < 4 {
			q := vmOn("esx1", "warm", 0, time.Minute)
			q.Run, q.Kind = fmt.Sprintf("%s/round%d", name, rounds[name]), Again
			m.ask(q)
		}
	}
	m.until(epoch.Add(3 * time.Hour))
	for i := range 20 {
		if name := fmt.Sprintf("warm-esx1-%d", i); m.ended[name].IsZero() {
			t.Errorf("%s was not copied in 3 hours", name)
		}
	}
}

// MTV-1573: a VM with more disks than the limit was never scheduled.
func TestVMWithMoreDisksThanTheLimitRunsAlone(t *testing.T) {
	m := oneHost(t, 20)
	for i := range 200 {
		m.ask(Request{Run: fmt.Sprint("small", i), Plan: "p", Needs: needs("host:esx1/disks", 1), Expected: 10 * time.Minute})
	}
	m.decide()
	m.ask(Request{Run: "large", Plan: "q", Needs: needs("host:esx1/disks", 50), Expected: 5 * time.Minute})
	m.run()
	for run, begun := range m.begun {
		if run != "large" && begun.Before(m.ended["large"]) && m.ended[run].After(m.begun["large"]) {
			t.Fatalf("%s ran beside the VM that has all disks of the host", run)
		}
	}
	if waited := m.begun["large"].Sub(epoch); waited > 3*10*time.Minute+DefaultReserveAfter {
		t.Errorf("waited %v behind the small ones", waited)
	}
}

// Forklift #2236, MTV-2973: copies under way were begun again when a slot came free.
func TestFreedSlotBeginsNothingThatRuns(t *testing.T) {
	m := oneHost(t, 2)
	for i := range 6 {
		m.ask(vmOn("esx1", "p", i, time.Duration(6-i)*time.Hour))
	}
	m.decide()
	for _, q := range m.asked { // a reconcile loop asks again and again
		if err := m.s.Submit(m.now, q); err != nil {
			t.Fatal(err)
		}
	}
	m.run() // fails where anything is granted twice
}

// MTV-6021: the slot was held through the conversion that follows the copy.
func TestSlotIsHeldForExactlyTheTransfer(t *testing.T) {
	m := oneHost(t, 1)
	m.ask(vmOn("esx1", "p", 0, time.Hour), vmOn("esx1", "p", 1, time.Minute))
	m.decide()
	m.now = m.now.Add(time.Hour)
	m.s.Release("p-esx1-0") // copied; its conversion goes on elsewhere
	if got := m.decide(); len(got) != 1 || got[0] != "p-esx1-1" {
		t.Errorf("granted %v at the end of the copy", got)
	}
}

// MTV-5805: users could not see why a VM waits.
func TestEveryWaitingRunSaysWhy(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	f := fleet{hosts: 3, datastores: 2}
	m := newSim(t, f.capacities())
	for i := range 500 {
		m.ask(f.vm(rng, "p", i))
	}
	m.decide()
	snap := m.s.Snapshot()
	for _, w := range snap.Waiting {
		if w.Reason != Full || len(w.Blocks) == 0 || w.Blocks[0].Free.IsZero() {
			t.Fatalf("%+v", w)
		}
	}
	if len(snap.Waiting) < 300 {
		t.Fatalf("only %d wait", len(snap.Waiting))
	}
}

// MTV-2775: three seconds went by between the plans of one provider.
func TestAllPlansBeginInOneDecision(t *testing.T) {
	m := oneHost(t, 20)
	for p := range 20 {
		for i := range 100 {
			m.ask(vmOn("esx1", fmt.Sprint("p", p), i, time.Hour))
		}
	}
	plans := map[string]bool{}
	for _, g := range m.s.Decide(m.now) {
		plans[g.Plan] = true
	}
	if len(plans) != 20 {
		t.Errorf("%d of 20 plans began", len(plans))
	}
}

// Forklift #6948: with a thousand plans the finished ones went on costing.
func TestFinishedPlansLeaveNothing(t *testing.T) {
	o := newOracle(t, never)
	o.setCapacity("host:esx1/vms", 50)
	for p := range 2000 {
		o.s.Submit(o.now, vmOn("esx1", fmt.Sprint("p", p), 0, time.Hour))
		for _, g := range o.s.Decide(o.now) {
			o.s.Release(g.Run)
		}
	}
	o.empty()
	if len(o.s.registry.plans) != 0 {
		t.Errorf("%d plans are remembered", len(o.s.registry.plans))
	}
}

// One global number, of VMs or of disks depending on the mode: here each host has values
// of its own, changed while everything runs.
func TestCapacityIsPerHostAndLive(t *testing.T) {
	m := newSim(t, map[string]int64{"host:esx1/vms": 2, "host:esx2/vms": 5})
	for i := range 20 {
		m.ask(vmOn("esx1", "p", i, time.Hour), vmOn("esx2", "p", i, time.Hour))
	}
	count := func() (n [3]int) {
		for _, run := range m.decide() {
			n[run[len("p-esx")]-'0']++
		}
		return n
	}
	if n := count(); n != [3]int{0, 2, 5} {
		t.Fatalf("granted %v", n)
	}
	m.s.SetCapacity("host:esx1/vms", 6)
	m.s.SetCapacity("host:esx2/vms", 3)
	if n := count(); n != [3]int{0, 4, 0} {
		t.Fatalf("granted %v after the change", n)
	}
	for i := range 5 {
		if run := fmt.Sprintf("p-esx2-%d", i); !m.s.HasGrant(run) {
			t.Errorf("%s lost its slot when the limit of its host was lowered", run)
		}
	}
	m.s.Release("p-esx2-0")
	m.s.Release("p-esx2-1")
	if n := count(); n != [3]int{} {
		t.Fatalf("granted %v while esx2 has as many as it may", n)
	}
}

// A look-up that failed for one VM failed the schedule of all.
func TestWrongRequestHarmsNobodyElse(t *testing.T) {
	m := oneHost(t, 2)
	bad := vmOn("esx9", "p", 1, time.Hour)
	if err := m.s.Submit(m.now, vmOn("esx1", "p", 0, time.Hour), bad, vmOn("esx1", "p", 2, time.Hour)); err == nil {
		t.Error("a resource that nobody knows was accepted")
	}
	if grants := m.s.Decide(m.now); len(grants) != 2 {
		t.Errorf("granted %v", grants)
	}
}

// MTV: 500 VMs in one plan took 5 h 10, 800 in eight plans 57 min. A plan never needs
// splitting.
func TestOnePlanIsAsFastAsEight(t *testing.T) {
	took := func(plans int) time.Duration {
		rng := rand.New(rand.NewPCG(8, 8))
		f := fleet{hosts: 8, datastores: 8}
		m := newSim(t, f.capacities())
		for i := range 800 {
			q := f.vm(rng, "p", i)
			q.Plan = fmt.Sprint("p", i%plans)
			m.ask(q)
		}
		return m.run()
	}
	one, eight := took(1), took(8)
	t.Logf("800 VMs on 8 hosts: one plan %v, eight plans %v", one, eight)
	if one > eight*103/100 {
		t.Errorf("one plan takes %v, eight %v", one, eight)
	}
}

// Found on our own prototype: a waiter at the head of the line that was dead blocked all.
func TestRunThatCannotGoBlocksNobody(t *testing.T) {
	m := oneHost(t, 1)
	m.ask(vmOn("esx1", "p", 0, 9*time.Hour), vmOn("esx1", "p", 1, time.Hour))
	m.s.PauseRun("p-esx1-0")
	if got := m.decide(); len(got) != 1 || got[0] != "p-esx1-1" {
		t.Errorf("granted %v behind a paused run", got)
	}
	m.finish("p-esx1-1")
	m.s.ResumeRun("p-esx1-0")
	m.s.Release("p-esx1-0") // its owner is gone
	m.ask(vmOn("esx1", "p", 2, time.Minute))
	if got := m.decide(); len(got) != 1 || got[0] != "p-esx1-2" {
		t.Errorf("granted %v behind a run that was taken out", got)
	}
}

// Found there, too: a limit of workers beside the scheduler filled up with runs that
// waited in the scheduler. As a resource, it is granted with the rest or not at all.
func TestWorkersAreResourcesLikeOthers(t *testing.T) {
	m := newSim(t, map[string]int64{"host:esx1/vms": 1, "host:esx2/vms": 1, "worker:w/runs": 2})
	for i := range 3 {
		q := vmOn("esx1", "p", i, time.Hour)
		q.Needs = append(q.Needs, Need{"worker:w/runs", 1})
		m.ask(q)
	}
	last := vmOn("esx2", "p", 9, time.Minute)
	last.Needs = append(last.Needs, Need{"worker:w/runs", 1})
	m.ask(last)
	if got := m.decide(); len(got) != 2 {
		t.Errorf("granted %v: the run on esx2 has room", got)
	}
}
