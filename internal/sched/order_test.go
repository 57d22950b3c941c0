package sched

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOrderByCutoverThenPriority(t *testing.T) {
	m := oneHost(t, 1)
	for i, stage := range []TransferKind{First, First, Cutover} {
		q := vmOn("esx1", "p", i, time.Hour)
		q.Priority, q.Kind = []int{0, 5, -3}[i], stage
		m.submit(q)
	}
	m.run()
	if want := []string{"p-esx1-2", "p-esx1-1", "p-esx1-0"}; !slices.Equal(m.order, want) {
		t.Errorf("order %v, want %v", m.order, want)
	}
}

// Plans share a resource according to their weights. A small plan that is submitted late does not wait for the end of a
// large one.
func TestPlansShareResourcesByWeight(t *testing.T) {
	m := oneHost(t, 12)
	if err := m.s.SetPlan("heavy", 2); err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		m.submit(vmOn("esx1", "large", i, time.Duration(30+i%7)*time.Minute))
	}
	m.runUntil(epoch.Add(2 * time.Hour))
	for i := range 100 {
		m.submit(vmOn("esx1", "small", i, 20*time.Minute), vmOn("esx1", "heavy", i, 20*time.Minute))
	}
	m.runUntil(epoch.Add(4 * time.Hour))
	m.decide()
	have := map[string]int{}
	for _, h := range m.s.Snapshot().Resources[1].Allocations {
		have[h.Plan]++
	}
	if have["large"] != 3 || have["small"] != 3 || have["heavy"] != 6 {
		t.Errorf("of 12 slots: %v, want 3, 3 and 6 for weight 2", have)
	}
}

// A plan of the largest weight leaves a slot to another plan, even if its queue is ten times as long and it came first.
func TestLargestWeightStarvesNoPlan(t *testing.T) {
	for _, slots := range []int64{2, 5} {
		m := oneHost(t, slots)
		if err := m.s.SetPlan("heavy", 100); err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			m.submit(vmOn("esx1", "heavy", i, 20*time.Minute))
		}
		for i := range 20 {
			m.submit(vmOn("esx1", "light", i, 20*time.Minute))
		}
		m.run()
		last := slices.IndexFunc(m.order, func(run string) bool { return run == "light-esx1-19" })
		if most := 20 * int(slots); last < 0 || last >= most {
			t.Errorf("%d slots: the last of light is number %d, want %d at most", slots, last+1, most)
		}
	}
}

// Two plans with runs on a host share that host, whatever they hold on other hosts.
func TestPlansShareEachResource(t *testing.T) {
	m := newSim(t, map[string]int64{"host:esx1/vms": 10, "host:esx2/vms": 10})
	for i := range 60 {
		m.submit(vmOn("esx1", "wide", i, time.Hour), vmOn("esx2", "wide", i, time.Hour), vmOn("esx1", "narrow", i, time.Hour))
	}
	have := map[string]int{}
	for _, run := range m.decide() {
		have[run[:len("wide-esx1")]]++
	}
	if have["wide-esx1"] != 5 || have["narrow-es"] != 5 || have["wide-esx2"] != 10 {
		t.Errorf("grants are %v, want 5 of each plan on esx1 and 10 on esx2", have)
	}
}

// First copies do not wait for the end of all rounds, and rounds do not wait for the end of all first copies.
func TestFirstCopiesAndRoundsShare(t *testing.T) {
	m := oneHost(t, 10)
	for i := range 100 {
		first, again := vmOn("esx1", "p", i, time.Hour), vmOn("esx1", "p", i+100, 3*time.Minute)
		again.Kind = Again
		m.submit(first, again)
	}
	rounds := 0
	for _, g := range m.s.Decide(m.now) {
		if m.s.registry.runs[g.Run].req.Kind == Again {
			rounds++
		}
	}
	if rounds != 5 {
		t.Errorf("%d rounds and %d first copies, want 5 each", rounds, 10-rounds)
	}
}

// Rounds are granted in the order of their requests. They repeat for days, and longer ones must not pass the shortest
// one forever.
func TestRoundsAreGrantedInOrder(t *testing.T) {
	m := oneHost(t, 1)
	for i := range 10 {
		q := vmOn("esx1", "p", i, time.Duration(1+i)*time.Minute)
		q.Kind = Again
		m.submit(q)
	}
	m.run()
	for i, run := range m.order {
		if run != fmt.Sprint("p-esx1-", i) {
			t.Fatalf("order is %v", m.order)
		}
	}
}

func TestLongestExpectedGoesFirst(t *testing.T) {
	m := oneHost(t, 1)
	for i := range 50 {
		m.submit(vmOn("esx1", "p", i, time.Duration(1+i*7%50)*time.Minute))
	}
	m.run()
	lengths := make([]time.Duration, len(m.order))
	for i, run := range m.order {
		lengths[i] = -m.lengths[run]
	}
	if !slices.IsSorted(lengths) {
		t.Errorf("order by length: %v", lengths)
	}
}

// If a target limits the transfers, they are spread over all hosts.
func TestRunsAreSpreadOverHosts(t *testing.T) {
	caps := map[string]int64{"target:kvm/vms": 12}
	for h := range 4 {
		caps[fmt.Sprintf("host:esx%d/vms", h)] = 20
	}
	m := newSim(t, caps)
	for h := range 4 {
		for i := range 100 {
			q := vmOn(fmt.Sprint("esx", h), "p", i, time.Duration(18+i%16)*time.Minute)
			q.Needs = append(q.Needs, Need{"target:kvm/vms", 1})
			m.submit(q)
		}
	}
	for m.now.Before(epoch.Add(8 * time.Hour)) {
		m.decide()
		for h := range 4 {
			if n := len(m.s.registry.resources[fmt.Sprintf("host:esx%d/vms", h)].holders); n < 2 || n > 4 {
				t.Fatalf("at %v esx%d has %d of 12 transfers, want 2 to 4", m.now, h, n)
			}
		}
		m.step()
	}
}

// If a target limits the transfers, a host with more work runs more of them.
func TestHostWithMoreWorkRunsMoreTransfers(t *testing.T) {
	m := newSim(t, map[string]int64{"target:kvm/vms": 12, "host:esx1/vms": 20, "host:esx2/vms": 20})
	for host, vms := range map[string]int{"esx1": 300, "esx2": 100} {
		for i := range vms {
			q := vmOn(host, "p", i, time.Hour)
			q.Needs = append(q.Needs, Need{"target:kvm/vms", 1})
			m.submit(q)
		}
	}
	m.step() // the first runs do not wait for the target, and are spread evenly
	have := map[string]int{}
	for _, run := range m.decide() {
		have[run[:len("p-esx1")]]++
	}
	if have["p-esx1"] != 9 || have["p-esx2"] != 3 {
		t.Errorf("grants are %v, want 9 for 300 VMs and 3 for 100 VMs", have)
	}
}

// A run that waits for a closed host reserves no other resource that it needs.
func TestClosedHostReservesNoResources(t *testing.T) {
	m := newSim(t, map[string]int64{"host:a/vms": 5, "host:b/vms": 5, "target:t/disks": 4})
	small := func(i int) Request {
		return Request{Run: fmt.Sprint("small", i), Plan: "s", Needs: needs("target:t/disks", 1, "host:b/vms", 1), Expected: time.Duration(10+i%4) * time.Minute}
	}
	n := 0
	more := func(string) { m.submit(small(n)); n++ }
	for range 8 {
		more("")
	}
	m.decide()
	for i := range 20 { // so that they wait in the queue of the target, which is shorter
		m.submit(Request{Run: fmt.Sprint("large", i), Plan: "l", Needs: needs("target:t/disks", 3, "host:a/vms", 1), Expected: time.Hour})
	}
	m.after = more
	m.runUntil(epoch.Add(2 * time.Minute))
	if err := m.s.SetCapacity("host:a/vms", 0); err != nil {
		t.Fatal(err)
	}
	for m.now.Before(epoch.Add(5 * time.Hour)) {
		m.decide()
		if r := m.s.registry.resources["target:t/disks"]; r.used < 4 {
			t.Fatalf("at %v: %d of 4 units in use, reserved: %v", m.now, r.used, r.reservedFor != nil)
		}
		m.step()
	}
}

// Small requests pass a large one until ReserveAfter has passed. The wait of the large one is bounded, however many
// small ones are submitted.
func TestLargeRequestsDoNotStarve(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		m := newSim(t, map[string]int64{"host:esx1/disks": 10, "datastore:d/reads": 10, "vcenter:v/tasks": 10})
		small := func(i int) Request {
			resource := []string{"host:esx1/disks", "datastore:d/reads", "vcenter:v/tasks"}[rng.IntN(3)]
			return Request{Run: fmt.Sprint("small", i), Plan: "s", Expected: time.Duration(5+rng.IntN(15)) * time.Minute, Needs: needs(resource, 1+rng.IntN(3))}
		}
		count := 60
		for i := range count {
			m.submit(small(i))
		}
		m.after = func(run string) { // submits a small one for each that ends
			if strings.HasPrefix(run, "small") {
				m.submit(small(count))
				count++
			}
		}
		m.decide()
		m.submit(Request{Run: "large", Plan: "l", Expected: time.Minute, Needs: needs("host:esx1/disks", 9, "datastore:d/reads", 9, "vcenter:v/tasks", 2)})
		m.runUntil(epoch.Add(6 * time.Hour))
		bound := DefaultReserveAfter + 3*20*time.Minute
		if begun, ok := m.begun["large"]; !ok || begun.Sub(epoch) > bound {
			t.Errorf("seed %d: began after %v (began: %v), want at most %v", seed, begun.Sub(epoch), ok, bound)
		}
	}
}

// A run that needs two resources begins, although they are never free at the same time because of other runs.
func TestRunThatNeedsTwoBusyResourcesDoesNotStarve(t *testing.T) {
	m := newSim(t, map[string]int64{"host:a/vms": 1, "datastore:d/reads": 1})
	n := 0
	ask := func(resource string, length time.Duration) {
		m.submit(Request{Run: fmt.Sprint(resource, n), Plan: fmt.Sprint("p", n), Needs: needs(resource, 1), Expected: length})
		n++
	}
	for range 3 {
		ask("host:a/vms", 7*time.Minute)
		ask("datastore:d/reads", 11*time.Minute)
	}
	m.decide()
	m.submit(Request{Run: "both", Plan: "both", Needs: needs("host:a/vms", 1, "datastore:d/reads", 1), Expected: time.Minute})
	m.after = func(run string) {
		if name := strings.TrimRight(run, "0123456789"); name != "both" {
			ask(name, m.lengths[run])
		}
	}
	m.runUntil(epoch.Add(24 * time.Hour))
	if begun, ok := m.begun["both"]; !ok || begun.Sub(epoch) > 4*time.Hour {
		t.Errorf("began after %v (began: %v), want at most 4 h", begun.Sub(epoch), ok)
	}
}

// While units of a host are reserved for a large request, runs that end before it can begin use them.
func TestReservedUnitsAreUsedByShortRuns(t *testing.T) {
	m := newSim(t, map[string]int64{"host:a/disks": 10})
	m.submit(Request{Run: "long", Plan: "p", Needs: needs("host:a/disks", 5), Expected: time.Hour})
	m.decide()
	m.submit(Request{Run: "large", Plan: "p", Needs: needs("host:a/disks", 8), Expected: time.Hour})
	m.submit(Request{Run: "passes", Plan: "p", Needs: needs("host:a/disks", 1), Expected: time.Minute})
	m.decide()
	m.s.Release("passes")
	m.now = m.now.Add(10 * time.Minute)
	for i := range 20 {
		m.submit(Request{Run: fmt.Sprint("short", i), Plan: "p", Needs: needs("host:a/disks", 1), Expected: 20 * time.Minute})
	}
	m.submit(Request{Run: "late", Plan: "p", Needs: needs("host:a/disks", 1), Expected: 55 * time.Minute})
	if got := m.decide(); len(got) != 5 || slices.Contains(got, "late") {
		t.Errorf("granted %v, want 5 short runs", got)
	}
	m.run()
	if got := m.begun["large"]; !got.Equal(m.ended["long"]) {
		t.Errorf("large began at %v, want the end of long at %v", got, m.ended["long"])
	}
}

// The order of the grants on one resource is that of a simple model.
func TestOrderOnOneResourceMatchesTheModel(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 5))
		m := newSim(t, map[string]int64{"host:a/vms": int64(1 + rng.IntN(6))})
		m.s.queue.patience = noReservation
		used := map[string]int{}
		for i := range 60 {
			q := vmOn("a", fmt.Sprint("p", rng.IntN(4)), i, time.Duration(1+rng.IntN(40))*time.Minute)
			q.Priority = rng.IntN(2)
			m.submit(q)
		}
		seq := map[string]int{}
		for i, q := range m.requests {
			if seq[q.Plan] == 0 {
				seq[q.Plan] = i + 1
			}
		}
		waiting := slices.Clone(m.requests)
		m.after = func(run string) { used[strings.Split(run, "-")[0]]-- }
		for len(waiting) > 0 {
			for _, run := range m.decide() {
				slices.SortStableFunc(waiting, func(a, b Request) int {
					switch {
					case a.Priority != b.Priority:
						return b.Priority - a.Priority
					case used[a.Plan] != used[b.Plan]:
						return used[a.Plan] - used[b.Plan]
					case a.Plan != b.Plan:
						return seq[a.Plan] - seq[b.Plan]
					}
					return int(b.Expected - a.Expected)
				})
				if run != waiting[0].Run {
					t.Fatalf("seed %d: granted %s, want %s", seed, run, waiting[0].Run)
				}
				used[waiting[0].Plan]++
				waiting = waiting[1:]
			}
			m.step()
		}
	}
}
