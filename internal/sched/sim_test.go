package sched

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A sim runs a fleet in virtual time.
type sim struct {
	t        testing.TB
	s        *Scheduler
	now      time.Time
	lengths  map[string]time.Duration // duration of each run
	caps     map[string]int64
	requests []Request
	begun    map[string]time.Time
	ended    map[string]time.Time
	order    []string // runs in the order of their grants
	ends     ends

	// after is called after each end if it is not nil. It may submit more requests.
	after func(run string)
}

type end struct {
	at  time.Time
	run string
}

type ends []end

func (e ends) Len() int { return len(e) }
func (e ends) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].run < e[j].run
}
func (e ends) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)   { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newSim(t testing.TB, caps map[string]int64) *sim {
	m := &sim{
		t: t, s: New(Options{}), now: epoch, caps: caps, lengths: map[string]time.Duration{},
		begun: map[string]time.Time{}, ended: map[string]time.Time{},
	}
	for name, units := range caps {
		if err := m.s.SetCapacity(name, units); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// submit submits requests of runs that take as long as expected.
func (m *sim) submit(requests ...Request) {
	m.t.Helper()
	for _, q := range requests {
		m.lengths[q.Run] = q.Expected
	}
	m.requests = append(m.requests, requests...)
	if err := m.s.Submit(m.now, requests...); err != nil {
		m.t.Fatal(err)
	}
}

// decide begins the granted runs and returns them.
func (m *sim) decide() []string {
	var runs []string
	for _, g := range m.s.Decide(m.now) {
		if _, again := m.begun[g.Run]; again {
			m.t.Fatalf("%s was granted twice", g.Run)
		}
		m.begun[g.Run] = m.now
		heap.Push(&m.ends, end{m.now.Add(m.lengths[g.Run]), g.Run})
		runs = append(runs, g.Run)
	}
	m.order = append(m.order, runs...)
	return runs
}

// step decides and advances the time to the next event. It returns false if no event is left.
func (m *sim) step() bool {
	m.decide()
	wake, wakes := m.s.NextChange()
	if len(m.ends) == 0 && !wakes {
		return false
	}
	if len(m.ends) == 0 || wakes && wake.Before(m.ends[0].at) {
		m.now = wake
		return true
	}
	for m.now = m.ends[0].at; len(m.ends) > 0 && m.ends[0].at.Equal(m.now); {
		m.finish(heap.Pop(&m.ends).(end).run)
	}
	return true
}

func (m *sim) finish(run string) {
	m.s.Release(run)
	m.ended[run] = m.now
	if m.after != nil {
		m.after(run)
	}
}

// runUntil steps until t, or until no event is left.
func (m *sim) runUntil(t time.Time) {
	for m.now.Before(t) && m.step() {
	}
}

// run steps until no event is left, and returns the simulated duration. It fails the test if a run still waits.
func (m *sim) run() time.Duration {
	m.t.Helper()
	for m.step() {
	}
	if snap := m.s.Snapshot(); len(snap.Waiting) > 0 {
		m.t.Fatalf("%d runs still wait, the first is %+v", len(snap.Waiting), snap.Waiting[0])
	}
	return m.now.Sub(epoch)
}

// lowerBound returns a lower bound of the makespan: the duration of the longest run, or the highest load of a resource.
func (m *sim) lowerBound() time.Duration {
	var longest float64
	load := map[string]float64{}
	for _, q := range m.requests {
		seconds := m.lengths[q.Run].Seconds()
		longest = max(longest, seconds)
		for _, n := range q.Needs {
			load[n.Resource] += seconds * float64(min(n.Weight, m.caps[n.Resource])) / float64(m.caps[n.Resource])
		}
	}
	for _, seconds := range load {
		longest = max(longest, seconds)
	}
	return time.Duration(longest * float64(time.Second))
}

// A fleet is a number of hosts and datastores, with one vCenter and one target.
type fleet struct{ hosts, datastores int }

func (f fleet) capacities() map[string]int64 {
	caps := map[string]int64{"vcenter:vc/tasks": 640, "target:kvm/disks": 400, "link:dc/streams": Unlimited}
	for h := range f.hosts {
		caps[fmt.Sprintf("host:esx%d/vms", h)] = 20
		caps[fmt.Sprintf("host:esx%d/disks", h)] = 50
		caps[fmt.Sprintf("host:esx%d/nfc", h)] = 96 << 20
	}
	for d := range f.datastores {
		caps[fmt.Sprintf("datastore:ds%d/reads", d)] = 64
	}
	return caps
}

// randomVM returns the request of a random VM. Most VMs are small and a few are very large, as in practice.
func (f fleet) randomVM(rng *rand.Rand, plan string, i int) Request {
	host, disks := rng.IntN(f.hosts), int64(1+rng.IntN(4))
	minutes := 2 + rng.ExpFloat64()*15
	if rng.IntN(50) == 0 {
		disks, minutes = 8+int64(rng.IntN(43)), minutes*6
	}
	return Request{
		Run: fmt.Sprintf("%s/vm%05d", plan, i), Plan: plan,
		Expected: time.Duration(minutes * float64(time.Minute)).Round(time.Second),
		Needs: []Need{
			{fmt.Sprintf("host:esx%d/vms", host), 1},
			{fmt.Sprintf("host:esx%d/disks", host), disks},
			{fmt.Sprintf("host:esx%d/nfc", host), disks * 2 << 20},
			{fmt.Sprintf("datastore:ds%d/reads", rng.IntN(f.datastores)), disks},
			{"vcenter:vc/tasks", 1}, {"target:kvm/disks", disks}, {"link:dc/streams", disks},
		},
	}
}

// needs returns needs from pairs of a resource and a weight.
func needs(resourcesAndWeights ...any) []Need {
	var list []Need
	for i := 0; i < len(resourcesAndWeights); i += 2 {
		list = append(list, Need{resourcesAndWeights[i].(string), int64(resourcesAndWeights[i+1].(int))})
	}
	return list
}

// naiveMakespan returns the makespan of a simple scheduler without plans. It checks all runs after each end, the
// longest first. The Scheduler must not have a much longer makespan.
func (m *sim) naiveMakespan() time.Duration {
	waiting, byRun := slices.Clone(m.requests), map[string]Request{}
	slices.SortStableFunc(waiting, func(a, b Request) int { return cmp.Compare(b.Expected, a.Expected) })
	used, running, now := map[string]int64{}, ends{}, epoch
	for {
		waiting = slices.DeleteFunc(waiting, func(q Request) bool {
			for _, n := range q.Needs {
				if used[n.Resource] > 0 && n.Weight > m.caps[n.Resource]-used[n.Resource] {
					return false
				}
			}
			for _, n := range q.Needs {
				used[n.Resource] += n.Weight
			}
			byRun[q.Run] = q
			heap.Push(&running, end{now.Add(q.Expected), q.Run})
			return true
		})
		if len(running) == 0 {
			return now.Sub(epoch)
		}
		e := heap.Pop(&running).(end)
		for _, n := range byRun[e.run].Needs {
			used[n.Resource] -= n.Weight
		}
		now = e.at
	}
}

// newRandomSim returns a simulation of some 100 to 2,000 VMs, in several plans or in one.
func newRandomSim(t *testing.T, seed uint64, split bool) *sim {
	rng := rand.New(rand.NewPCG(seed, 1))
	f := fleet{hosts: 1 + rng.IntN(30), datastores: 1 + rng.IntN(12)}
	m := newSim(t, f.capacities())
	for p := range 1 + rng.IntN(6) {
		for i := range 30 + rng.IntN(400) {
			q := f.randomVM(rng, fmt.Sprint("p", p), i)
			if !split {
				q.Plan = "all"
			}
			m.submit(q)
		}
	}
	return m
}

// The makespan of random fleets is about that of a simple scheduler, which is near the lower bound. Fairness between
// plans makes it a little longer.
func TestMakespanIsNearTheLowerBound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const fleets = 20
	var one, several, naive float64
	for seed := range uint64(fleets) {
		m, s := newRandomSim(t, seed, false), newRandomSim(t, seed, true)
		bound := float64(m.lowerBound())
		a, b, c := float64(m.run())/bound, float64(s.run())/bound, float64(m.naiveMakespan())/bound
		t.Logf("%4d VMs, lower bound %v: one plan %.3f of it, several %.3f, naive %.3f", len(m.requests), m.lowerBound().Round(time.Minute), a, b, c)
		one, several, naive = one+a/fleets, several+b/fleets, naive+c/fleets
	}
	t.Logf("mean: one plan %.3f of the lower bound, several %.3f, naive %.3f", one, several, naive)
	if one > naive*1.02 || several > naive*1.08 {
		t.Errorf("makespan of one plan is %.3f of the lower bound, of several %.3f; naive %.3f", one, several, naive)
	}
}
