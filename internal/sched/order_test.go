package sched

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestHigherPrioritiesGoFirstAndCutoverBeforeAll(t *testing.T) {
	m := oneHost(t, 1)
	for i, stage := range []TransferKind{First, First, Cutover} {
		q := vmOn("esx1", "p", i, time.Hour)
		q.Priority, q.Kind = []int{0, 5, -3}[i], stage
		m.ask(q)
	}
	m.run()
	if want := []string{"p-esx1-2", "p-esx1-1", "p-esx1-0"}; !slices.Equal(m.order, want) {
		t.Errorf("order %v, want %v", m.order, want)
	}
}

// A small plan that comes late is not behind the whole of a large one, and weights count.
func TestPlansShareWhatTheyWaitFor(t *testing.T) {
	m := oneHost(t, 12)
	if err := m.s.SetPlan("heavy", 2); err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		m.ask(vmOn("esx1", "large", i, time.Duration(30+i%7)*time.Minute))
	}
	m.until(epoch.Add(2 * time.Hour))
	for i := range 100 {
		m.ask(vmOn("esx1", "small", i, 20*time.Minute), vmOn("esx1", "heavy", i, 20*time.Minute))
	}
	m.until(epoch.Add(4 * time.Hour))
	m.decide()
	have := map[string]int{}
	for _, h := range m.s.Snapshot().Resources[1].Allocations {
		have[h.Plan]++
	}
	if have["large"] != 3 || have["small"] != 3 || have["heavy"] != 6 {
		t.Errorf("of 12 slots: %v, want 3, 3 and 6 for weight 2", have)
	}
}

// A plan of the largest weight, whose queue is ten times as long and came first, leaves the other plan a
// slot at each time.
func TestLargestWeightStarvesNoPlan(t *testing.T) {
	for _, slots := range []int64{2, 5} {
		m := oneHost(t, slots)
		if err := m.s.SetPlan("heavy", 100); err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			m.ask(vmOn("esx1", "heavy", i, 20*time.Minute))
		}
		for i := range 20 {
			m.ask(vmOn("esx1", "light", i, 20*time.Minute))
		}
		m.run()
		last := slices.IndexFunc(m.order, func(run string) bool { return run == "light-esx1-19" })
		if most := 20 * int(slots); last < 0 || last >= most {
			t.Errorf("%d slots: the last of light is number %d, want %d at most", slots, last+1, most)
		}
	}
}

// Where each of two plans has work on a host, neither has the host for itself, whatever
// they have elsewhere.
func TestSharesAreOfTheResourceThatIsWaitedFor(t *testing.T) {
	m := newSim(t, map[string]int64{"host:esx1/vms": 10, "host:esx2/vms": 10})
	for i := range 60 {
		m.ask(vmOn("esx1", "wide", i, time.Hour), vmOn("esx2", "wide", i, time.Hour), vmOn("esx1", "narrow", i, time.Hour))
	}
	have := map[string]int{}
	for _, run := range m.decide() {
		have[run[:len("wide-esx1")]]++
	}
	if have["wide-esx1"] != 5 || have["narrow-es"] != 5 || have["wide-esx2"] != 10 {
		t.Errorf("%v", have)
	}
}

// First copies do not wait until all rounds are done, nor rounds until all is copied once.
func TestFirstCopiesAndRoundsShare(t *testing.T) {
	m := oneHost(t, 10)
	for i := range 100 {
		first, again := vmOn("esx1", "p", i, time.Hour), vmOn("esx1", "p", i+100, 3*time.Minute)
		again.Kind = Again
		m.ask(first, again)
	}
	rounds := 0
	for _, g := range m.s.Decide(m.now) {
		if m.s.registry.runs[g.Run].req.Kind == Again {
			rounds++
		}
	}
	if rounds != 5 {
		t.Errorf("%d rounds beside %d first copies", rounds, 10-rounds)
	}
}

// Rounds repeat for days: the shortest must not be passed by longer ones for ever.
func TestRoundsGoAsTheyCome(t *testing.T) {
	m := oneHost(t, 1)
	for i := range 10 {
		q := vmOn("esx1", "p", i, time.Duration(1+i)*time.Minute)
		q.Kind = Again
		m.ask(q)
	}
	m.run()
	for i, run := range m.order {
		if run != fmt.Sprint("p-esx1-", i) {
			t.Fatalf("order %v", m.order)
		}
	}
}

func TestLongestExpectedGoesFirst(t *testing.T) {
	m := oneHost(t, 1)
	for i := range 50 {
		m.ask(vmOn("esx1", "p", i, time.Duration(1+i*7%50)*time.Minute))
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

// Where a target is the limit, all hosts are read from, and not one after the other; a
// host with more to do gets more.
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
			m.ask(q)
		}
	}
	for m.now.Before(epoch.Add(8 * time.Hour)) {
		m.decide()
		for h := range 4 {
			if n := len(m.s.registry.resources[fmt.Sprintf("host:esx%d/vms", h)].holders); n < 2 || n > 4 {
				t.Fatalf("at %v esx%d has %d of 12", m.now, h, n)
			}
		}
		m.step()
	}
}

// Whoever waits for a host that is closed keeps nobody from anything else that it needs.
func TestNothingIsSetAsideForWhatIsClosed(t *testing.T) {
	m := newSim(t, map[string]int64{"host:a/vms": 5, "host:b/vms": 5, "target:t/disks": 4})
	small := func(i int) Request {
		return Request{Run: fmt.Sprint("small", i), Plan: "s", Needs: needs("target:t/disks", 1, "host:b/vms", 1), Expected: time.Duration(10+i%4) * time.Minute}
	}
	n := 0
	more := func(string) { m.ask(small(n)); n++ }
	for range 8 {
		more("")
	}
	m.decide()
	for i := range 20 { // so that they stand in the target's line, which is the shorter one
		m.ask(Request{Run: fmt.Sprint("large", i), Plan: "l", Needs: needs("target:t/disks", 3, "host:a/vms", 1), Expected: time.Hour})
	}
	m.after = more
	m.until(epoch.Add(2 * time.Minute))
	if err := m.s.SetCapacity("host:a/vms", 0); err != nil {
		t.Fatal(err)
	}
	for m.now.Before(epoch.Add(5 * time.Hour)) {
		m.decide()
		if r := m.s.registry.resources["target:t/disks"]; r.used < 4 {
			t.Fatalf("at %v: %d of 4 in use, set aside: %v", m.now, r.used, r.reservedFor != nil)
		}
		m.step()
	}
}

// A large request is passed by small ones for the scheduler's patience and no longer; the
// bound holds whatever else comes.
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
			m.ask(small(i))
		}
		m.after = func(run string) { // small ones come as fast as they go
			if strings.HasPrefix(run, "small") {
				m.ask(small(count))
				count++
			}
		}
		m.decide()
		m.ask(Request{Run: "large", Plan: "l", Expected: time.Minute, Needs: needs("host:esx1/disks", 9, "datastore:d/reads", 9, "vcenter:v/tasks", 2)})
		m.until(epoch.Add(6 * time.Hour))
		bound := DefaultReserveAfter + 3*20*time.Minute
		if begun, ok := m.begun["large"]; !ok || begun.Sub(epoch) > bound {
			t.Errorf("seed %d: began after %v (%v), the bound is %v", seed, begun.Sub(epoch), ok, bound)
		}
	}
}

// Two resources that are never free together: each time one is, others take the other.
func TestRunThatNeedsTwoBusyResourcesDoesNotStarve(t *testing.T) {
	m := newSim(t, map[string]int64{"host:a/vms": 1, "datastore:d/reads": 1})
	n := 0
	ask := func(resource string, length time.Duration) {
		m.ask(Request{Run: fmt.Sprint(resource, n), Plan: fmt.Sprint("p", n), Needs: needs(resource, 1), Expected: length})
		n++
	}
	for range 3 {
		ask("host:a/vms", 7*time.Minute)
		ask("datastore:d/reads", 11*time.Minute)
	}
	m.decide()
	m.ask(Request{Run: "both", Plan: "both", Needs: needs("host:a/vms", 1, "datastore:d/reads", 1), Expected: time.Minute})
	m.after = func(run string) {
		if name := strings.TrimRight(run, "0123456789"); name != "both" {
			ask(name, m.lengths[run])
		}
	}
	m.until(epoch.Add(24 * time.Hour))
	if begun, ok := m.begun["both"]; !ok || begun.Sub(epoch) > 4*time.Hour {
		t.Errorf("began after %v (%v)", begun.Sub(epoch), ok)
	}
}

// While a host drains for a large request, short ones use it until then, and no longer.
func TestWhatIsSetAsideIsLentToShortRuns(t *testing.T) {
	m := newSim(t, map[string]int64{"host:a/disks": 10})
	m.ask(Request{Run: "long", Plan: "p", Needs: needs("host:a/disks", 5), Expected: time.Hour})
	m.decide()
	m.ask(Request{Run: "large", Plan: "p", Needs: needs("host:a/disks", 8), Expected: time.Hour})
	m.ask(Request{Run: "passes", Plan: "p", Needs: needs("host:a/disks", 1), Expected: time.Minute})
	m.decide()
	m.s.Release("passes")
	m.now = m.now.Add(10 * time.Minute)
	for i := range 20 {
		m.ask(Request{Run: fmt.Sprint("short", i), Plan: "p", Needs: needs("host:a/disks", 1), Expected: 20 * time.Minute})
	}
	m.ask(Request{Run: "late", Plan: "p", Needs: needs("host:a/disks", 1), Expected: 55 * time.Minute})
	if got := m.decide(); len(got) != 5 || slices.Contains(got, "late") {
		t.Errorf("granted %v", got)
	}
	m.run()
	if got := m.begun["large"]; !got.Equal(m.ended["long"]) {
		t.Errorf("large began at %v, long ended at %v", got, m.ended["long"])
	}
}

// The ten lines that the order on one resource comes down to.
func TestOrderOnOneResourceIsTheModels(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 5))
		m := newSim(t, map[string]int64{"host:a/vms": int64(1 + rng.IntN(6))})
		m.s.queue.patience = never
		used := map[string]int{}
		for i := range 60 {
			q := vmOn("a", fmt.Sprint("p", rng.IntN(4)), i, time.Duration(1+rng.IntN(40))*time.Minute)
			q.Priority = rng.IntN(2)
			m.ask(q)
		}
		seq := map[string]int{}
		for i, q := range m.asked {
			if seq[q.Plan] == 0 {
				seq[q.Plan] = i + 1
			}
		}
		waiting := slices.Clone(m.asked)
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
					t.Fatalf("seed %d: granted %s, the model %s", seed, run, waiting[0].Run)
				}
				used[waiting[0].Plan]++
				waiting = waiting[1:]
			}
			m.step()
		}
	}
}
