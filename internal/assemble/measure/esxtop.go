package measure

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// sampleInterval is the duration of one sample of esxtop.
const sampleInterval = 5 * time.Second

// A topWatcher runs esxtop on some hosts while a row is measured.
type topWatcher struct {
	cancel  context.CancelFunc // ends esxtop on all hosts
	running sync.WaitGroup     // counts the hosts on which esxtop runs

	mu    sync.Mutex                   // guards hosts and their fields
	hosts map[inventory.MoRef]*topHost // output by host
}

// topHost is the output of esxtop on one host.
type topHost struct {
	loads []shell.Load // samples in the order of time
	err   error        // error that ended esxtop early; nil if none
}

// startWatch starts esxtop on the hosts of VMs. It fails if a login by SSH fails, before a row is
// measured.
func (b *Benchmark) startWatch(ctx context.Context, vms []*inventory.VM) (*topWatcher, error) {
	// all logins precede the first esxtop, so that a failed login leaves none running
	shells := map[inventory.MoRef]*shell.Shell{}
	for _, vm := range vms {
		if shells[vm.Host] != nil {
			continue
		}
		s, err := b.source.Shells.Open(ctx, vm.Host)
		if err != nil {
			return nil, err
		}
		shells[vm.Host] = s
	}
	w := &topWatcher{hosts: map[inventory.MoRef]*topHost{}}
	ctx, w.cancel = context.WithCancel(ctx)
	for host, s := range shells {
		h := &topHost{}
		w.hosts[host] = h
		w.running.Go(func() {
			err := s.Watch(ctx, sampleInterval, func(l shell.Load) {
				w.mu.Lock()
				defer w.mu.Unlock()
				h.loads = append(h.loads, l)
			})
			w.mu.Lock()
			defer w.mu.Unlock()
			h.err = err
		})
	}
	return w, nil
}

// stop ends esxtop on all hosts and returns when it has ended.
func (w *topWatcher) stop() {
	w.cancel()
	w.running.Wait()
}

// meanReads returns the sum over hosts of their mean reads, from samples that lie completely between
// two times. Without a sample it returns the error that ended esxtop, or fault.Unsupported.
func (w *topWatcher) meanReads(_ context.Context, began, ended time.Time) (sum bench.Device, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, host := range slices.Sorted(maps.Keys(w.hosts)) { // always the same error if several hosts have one
		h := w.hosts[host]
		d, n := meanLoad(h.loads, began, ended)
		switch {
		case n == 0 && h.err != nil:
			return bench.Device{}, h.err
		case n == 0:
			return bench.Device{}, fault.New(fault.Unsupported, "the row is too short for a sample of esxtop, which takes %v", sampleInterval)
		}
		sum.IOPS += d.IOPS
		sum.MiBs += d.MiBs
	}
	return sum, nil
}

// meanLoad returns the mean of the samples of one host between two times, and their number.
func meanLoad(loads []shell.Load, began, ended time.Time) (d bench.Device, n int) {
	for _, l := range loads {
		// At is the end of the sample. The whole sample must lie within the row.
		if l.At.Add(-sampleInterval).Before(began) || l.At.After(ended) {
			continue
		}
		n++
		d.IOPS += l.Reads
		d.MiBs += l.Bytes / bench.MiB
	}
	if n == 0 {
		return bench.Device{}, 0
	}
	return bench.Device{IOPS: d.IOPS / float64(n), MiBs: d.MiBs / float64(n)}, n
}
