package fleet

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

// A plan of 10,000 VMs, told in batches of 500: how long it takes from Run to the first
// transfer, and until all are queued. What is granted is held.
func BenchmarkFirstTransferOf10000(b *testing.B) {
	var first, queued time.Duration
	for range b.N {
		r := newRig(b, nil)
		m := newMover(b)
		m.list = func(_ context.Context, _ fleetdb.Plan, tell func([]fleetdb.VM) error) error {
			for vms := vmsOn(10_000, 8); len(vms) > 0; vms = vms[500:] {
				if err := tell(vms[:500]); err != nil {
					return err
				}
			}
			return nil
		}
		var once sync.Once
		begun := make(chan struct{})
		held, letGo := m.hold()
		hold := m.move
		m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
			once.Do(func() { close(begun) })
			return hold(ctx, vm, d)
		}
		r.submit("wave")
		began := time.Now()
		n := r.start(r.config(m, "w1"))
		<-begun
		first += time.Since(began)
		r.wait("the listing", func() bool { return !r.plan("wave").Listed.IsZero() })
		queued += time.Since(began)
		for range 160 { // 8 hosts of 20
			next(b, held)
		}
		n.end()
		close(letGo)
	}
	b.ReportMetric(first.Seconds()/float64(b.N), "s/first")
	b.ReportMetric(queued.Seconds()/float64(b.N), "s/queued")
	b.ReportMetric(0, "ns/op")
}

// What 1,000 cold VMs without a byte cost, from Run to the end.
func BenchmarkOverheadOf1000(b *testing.B) {
	for range b.N {
		r := newRig(b, nil)
		m := newMover(b, vmsOn(1000, 8)...)
		r.submit("wave")
		began := time.Now()
		n := r.start(r.config(m, "w1"))
		for r.plan("wave").State != fleetdb.PlanEnded {
			time.Sleep(50 * time.Millisecond)
		}
		b.ReportMetric(time.Since(began).Seconds(), "ms/vm") // of 1,000
		n.end()
	}
	b.ReportMetric(0, "ns/op")
}
