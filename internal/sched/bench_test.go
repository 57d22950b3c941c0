package sched

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

const benchRuns = 10_000

// shapes are the fleets of the benchmarks. Each has 10,000 runs, some with many disks.
var shapes = []struct {
	name      string
	hosts, ds int
	plans     int
	target    int64
}{
	{name: "hosts=8/plans=1", hosts: 8, ds: 8, plans: 1, target: 400},
	{name: "hosts=8/plans=40", hosts: 8, ds: 8, plans: 40, target: 400},
	{name: "resources=1000/plans=10", hosts: 300, ds: 97, plans: 10, target: 1 << 30},
	{name: "resources=1000/target-is-the-limit", hosts: 300, ds: 97, plans: 10, target: 100},
	{name: "hosts=8/plans=1000", hosts: 8, ds: 8, plans: 1000, target: 400},
}

func newBenchFleet(b *testing.B, i int) (*sim, []Request) {
	shape := shapes[i]
	f := fleet{hosts: shape.hosts, datastores: shape.ds}
	caps := f.capacities()
	caps["vcenter:vc/tasks"], caps["target:kvm/disks"] = 1<<30, shape.target
	rng := rand.New(rand.NewPCG(1, 1))
	requests := make([]Request, benchRuns)
	for n := range requests {
		requests[n] = f.randomVM(rng, fmt.Sprint("p", n%shape.plans), n)
	}
	return newSim(b, caps), requests
}

// BenchmarkFirstGrants submits 10,000 requests and decides once.
func BenchmarkFirstGrants(b *testing.B) {
	for i, shape := range shapes {
		b.Run(shape.name, func(b *testing.B) {
			granted := 0
			for b.Loop() {
				b.StopTimer()
				m, requests := newBenchFleet(b, i)
				b.StartTimer()
				if err := m.s.Submit(epoch, requests...); err != nil {
					b.Fatal(err)
				}
				granted = len(m.s.Decide(epoch))
			}
			b.ReportMetric(float64(granted), "granted")
		})
	}
}

// BenchmarkDecision releases a run, submits a request and decides, while 10,000 runs wait.
func BenchmarkDecision(b *testing.B) {
	for i, shape := range shapes {
		b.Run(shape.name, func(b *testing.B) {
			m, requests := newBenchFleet(b, i)
			m.submit(requests...)
			var held []Grant
			now, next, n := epoch, 0, 0
			held = append(held, m.s.Decide(now)...)
			for b.Loop() {
				end := held[next]
				next++
				now = now.Add(time.Second)
				m.s.Release(end.Run)
				q := requests[n%benchRuns]
				q.Run = fmt.Sprint("again", n)
				n++
				if err := m.s.Submit(now, q); err != nil {
					b.Fatal(err)
				}
				held = append(held, m.s.Decide(now)...)
			}
			b.ReportMetric(float64(len(held)-next), "under-way")
		})
	}
}

// BenchmarkSnapshot takes a snapshot, as a status page does.
func BenchmarkSnapshot(b *testing.B) {
	m, requests := newBenchFleet(b, 2)
	m.submit(requests...)
	m.s.Decide(epoch)
	for b.Loop() {
		m.s.Snapshot()
	}
}
