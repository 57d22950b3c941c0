package fleet

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

// BenchmarkFirstTransferOf10000 lists 10,000 VMs in batches of 500. It measures the time from Run to the
// first transfer, and until all VMs are queued. No transfer ends meanwhile.
func BenchmarkFirstTransferOf10000(b *testing.B) {
	var first, queued time.Duration
	for range b.N {
		r := newTestFleet(b, nil)
		m := newFakeMover(b)
		m.list = func(_ context.Context, _ fleetdb.Plan, found func([]fleetdb.VM) error) error {
			for vms := vmsOn(10_000, 8); len(vms) > 0; vms = vms[500:] {
				if err := found(vms[:500]); err != nil {
					return err
				}
			}
			return nil
		}
		var once sync.Once
		begun := make(chan struct{})
		held, release := m.holdTransfers()
		hold := m.move
		m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
			once.Do(func() { close(begun) })
			return hold(ctx, vm, d)
		}
		r.submitPlan("wave")
		began := time.Now()
		n := r.startNode(r.nodeConfig(m, "w1"))
		<-begun
		first += time.Since(began)
		r.waitUntil("the listing", func() bool { return !r.getPlan("wave").Listed.IsZero() })
		queued += time.Since(began)
		for range 160 { // 8 hosts of 20
			receive(b, held)
		}
		n.end()
		close(release)
	}
	b.ReportMetric(first.Seconds()/float64(b.N), "s/first")
	b.ReportMetric(queued.Seconds()/float64(b.N), "s/queued")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkOverheadOf1000 moves 1,000 cold VMs without data, and measures the time from Run to the end.
func BenchmarkOverheadOf1000(b *testing.B) {
	for range b.N {
		r := newTestFleet(b, nil)
		m := newFakeMover(b, vmsOn(1000, 8)...)
		r.submitPlan("wave")
		began := time.Now()
		n := r.startNode(r.nodeConfig(m, "w1"))
		for r.getPlan("wave").State != fleetdb.PlanEnded {
			time.Sleep(50 * time.Millisecond)
		}
		b.ReportMetric(time.Since(began).Seconds(), "ms/vm") // seconds for 1,000 VMs
		n.end()
	}
	b.ReportMetric(0, "ns/op")
}
