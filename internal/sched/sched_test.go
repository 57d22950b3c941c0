package sched

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

func TestWrongRequestsAreRefused(t *testing.T) {
	good := Request{Run: "r", Plan: "p", Needs: needs("host:a/vms", 1)}
	for name, change := range map[string]func(*Request){
		"no run":           func(q *Request) { q.Run = "" },
		"no plan":          func(q *Request) { q.Plan = "" },
		"priority":         func(q *Request) { q.Priority = maxPriority + 1 },
		"stage":            func(q *Request) { q.Kind = transferKinds },
		"expected":         func(q *Request) { q.Expected = -1 },
		"no needs":         func(q *Request) { q.Needs = nil },
		"weight 0":         func(q *Request) { q.Needs = needs("host:a/vms", 0) },
		"weight":           func(q *Request) { q.Needs = needs("host:a/vms", MaxWeight+1) },
		"twice":            func(q *Request) { q.Needs = needs("host:a/vms", 1, "host:a/vms", 1) },
		"unknown resource": func(q *Request) { q.Needs = needs("host:b/vms", 1) },
		"empty window":     func(q *Request) { q.Windows = []Window{{epoch, epoch}} },
	} {
		s := New(Options{})
		s.SetCapacity("host:a/vms", 1)
		q := good
		change(&q)
		if err := s.Submit(epoch, q); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: got %v, want Invalid", name, err)
		}
		if grants := s.Decide(epoch); len(grants) > 0 {
			t.Errorf("%s: granted %v", name, grants)
		}
	}
	s := New(Options{})
	for _, err := range []error{s.SetCapacity("", 1), s.SetCapacity("x", -1), s.SetPlan("p", 0), s.SetPlan("", 1)} {
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("got %v, want Invalid", err)
		}
	}
}

// Submit of the same request again changes nothing, and the run keeps its position.
func TestSubmitAgain(t *testing.T) {
	m := oneHost(t, 1)
	m.submit(vmOn("esx1", "p", 0, time.Hour), vmOn("esx1", "p", 1, time.Minute), vmOn("esx1", "p", 2, time.Minute))
	if got := m.decide(); len(got) != 1 {
		t.Fatalf("granted %v", got)
	}
	m.submit(vmOn("esx1", "p", 0, time.Hour), vmOn("esx1", "p", 1, time.Minute))
	other := vmOn("esx1", "p", 0, time.Hour)
	other.Needs = needs("host:esx1/vms", 2)
	if err := m.s.Submit(m.now, other); !fault.Is(err, fault.Conflict) {
		t.Errorf("another request of a run with a grant: got %v, want Conflict", err)
	}
	m.s.Release("p-esx1-0")
	if m.s.Release("p-esx1-0") {
		t.Error("released twice")
	}
	if got := m.decide(); len(got) != 1 || got[0] != "p-esx1-1" {
		t.Errorf("granted %v, want p-esx1-1", got)
	}
}

func TestWindowsOpenAndClose(t *testing.T) {
	m := oneHost(t, 1)
	q := vmOn("esx1", "p", 0, time.Hour)
	at := func(hours int) time.Time { return epoch.Add(time.Duration(hours) * time.Hour) }
	q.Windows = []Window{{at(1), at(2)}, {at(5), at(6)}}
	m.submit(vmOn("esx1", "p", 9, 3*time.Hour), q)
	m.run() // the first window ends before the slot is free
	if begun := m.begun[q.Run]; !begun.Equal(at(5)) {
		t.Errorf("began at %v, want %v", begun, at(5))
	}
	if _, wakes := m.s.NextChange(); wakes {
		t.Error("NextChange returned a time although no window is left")
	}
}

// A clock that is set back closes a window again.
func TestClockSetBackClosesWindow(t *testing.T) {
	m := oneHost(t, 1)
	q := vmOn("esx1", "p", 0, time.Hour)
	q.Windows = []Window{{From: epoch.Add(time.Hour)}}
	m.submit(vmOn("esx1", "p", 9, 3*time.Hour), q)
	m.decide()
	m.now = epoch.Add(2 * time.Hour)
	m.decide()
	m.s.Release("p-esx1-9")
	m.now = epoch
	if got := m.decide(); len(got) != 0 {
		t.Fatalf("granted %v before its window", got)
	}
	if wake, ok := m.s.NextChange(); !ok || !wake.Equal(epoch.Add(time.Hour)) {
		t.Fatalf("NextChange: got %v, %v; want the start of the window", wake, ok)
	}
	m.now = epoch.Add(time.Hour)
	if got := m.decide(); len(got) != 1 {
		t.Error("the run was not granted after its window opened again")
	}
}

// Restored grants count as used, even above the current capacity.
func TestRestoreCountsHolders(t *testing.T) {
	s := New(Options{})
	held := []RestoredGrant{
		{Run: "a", Plan: "p", Needs: needs("host:x/vms", 2), Since: epoch, Until: epoch.Add(time.Hour)},
		{Run: "b", Plan: "p", Kind: Again, Needs: needs("host:x/vms", 3, "worker:w/runs", 1), Since: epoch},
	}
	for range 2 {
		if err := s.Restore(held...); err != nil {
			t.Fatal(err)
		}
	}
	s.SetCapacity("host:x/vms", 4) // less than the restored grants
	s.Submit(epoch, Request{Run: "c", Plan: "q", Needs: needs("host:x/vms", 1)}, Request{Run: "a", Plan: "p", Needs: held[0].Needs})
	if grants := s.Decide(epoch); len(grants) > 0 || !s.HasGrant("a") || s.HasGrant("c") {
		t.Fatalf("granted %v while 5 of 4 units are in use", grants)
	}
	s.Release("b")
	if grants := s.Decide(epoch); len(grants) != 1 || grants[0].Run != "c" {
		t.Fatalf("granted %v, want c", grants)
	}
	other := held[0]
	other.Needs = needs("host:x/vms", 1)
	if err := s.Restore(other); !fault.Is(err, fault.Conflict) {
		t.Errorf("another grant of the same run: got %v, want Conflict", err)
	}
	if err := s.Restore(RestoredGrant{Run: "d"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a grant without a plan: got %v, want Invalid", err)
	}
}

// A new scheduler continues after a crash from the restored grants. The simulation crashes every 50 steps.
func TestRestoredSchedulerContinues(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	f := fleet{hosts: 4, datastores: 3}
	m := newSim(t, f.capacities())
	for i := range 400 {
		m.submit(f.randomVM(rng, "p", i))
	}
	for n := 0; m.step(); n++ {
		if n%50 != 0 {
			continue
		}
		fresh := newSim(t, m.caps)
		for _, q := range m.requests {
			if x := m.s.registry.runs[q.Run]; x != nil && x.state == holding {
				if err := fresh.s.Restore(RestoredGrant{Run: q.Run, Plan: q.Plan, Needs: x.heldNeeds(), Since: x.since, Until: x.until}); err != nil {
					t.Fatal(err)
				}
			} else if x != nil {
				fresh.s.Submit(m.now, q)
			}
		}
		m.s = fresh.s
	}
	if len(m.ended) != 400 {
		t.Errorf("%d runs ended, want 400", len(m.ended))
	}
}

// The tree finds the same runs as a search in a sorted slice.
func TestTreeFindsTheFirstThatFits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var tr tree
	var model []*run
	for n := range 20000 {
		if len(model) == 0 || rng.IntN(5) > 1 && len(model) < 200 {
			x := &run{seq: uint64(n), req: Request{Expected: time.Duration(rng.IntN(30)) * time.Minute}}
			tr.insert(x, int64(1+rng.IntN(40)))
			at, _ := slices.BinarySearchFunc(model, x, func(a, b *run) int {
				if a.isAhead(b) {
					return -1
				}
				return 1
			})
			model = slices.Insert(model, at, x)
		} else {
			at := rng.IntN(len(model))
			tr.remove(model[at])
			model = slices.Delete(model, at, at+1)
		}
		limit, longest := int64(rng.IntN(45)), time.Duration(rng.IntN(30))*time.Minute
		if got, want := tr.firstWithin(limit), findFirst(model, limit, time.Hour, 0); got != want {
			t.Fatalf("first of weight %d: %v, want %v", limit, got, want)
		}
		if got, want := tr.firstShort(longest, limit), findFirst(model, limit, longest, 1); got != want {
			t.Fatalf("first of weight %d and length %v: %v, want %v", limit, longest, got, want)
		}
	}
}

func findFirst(model []*run, limit int64, longest, shortest time.Duration) *run {
	for _, x := range model {
		if x.node.weight <= limit && x.length() <= longest && x.length() >= shortest {
			return x
		}
	}
	return nil
}
