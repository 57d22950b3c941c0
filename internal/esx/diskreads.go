package esx

import (
	"context"
	"fmt"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// DiskReads is what a host read of all its disks, whoever asked for it.
type DiskReads struct {
	PerSecond float64 // read requests
	Bytes     float64 // a second
	Samples   int     // that these are the means of
}

// perfSample is how long a host's own samples are; it keeps them for an hour.
const perfSample = 20 * time.Second

// The counters of a host's disks, by their names in the group disk: each is told by instance, which
// is a device.
const (
	perfGroup    = "disk"
	perfRequests = "numberReadAveraged" // a second
	perfKiB      = "read"               // KiB a second
)

// DiskReads asks a host what its disks did in a time that is over, in samples of 20 s that lie in
// it as a whole. Without one, or from a host that counts nothing, it is fault.Unsupported.
func (s *hostController) DiskReads(ctx context.Context, host inventory.MoRef, began, ended time.Time) (DiskReads, error) {
	if ended.Sub(began) < perfSample {
		return DiskReads{}, fault.New(fault.Unsupported, "it was shorter than a sample of the host, %v", perfSample)
	}
	manager := s.vim.ServiceContent.PerfManager
	if manager == nil {
		return DiskReads{}, fault.New(fault.Unsupported, "the host keeps no performance counters")
	}
	requests, kib, err := s.diskCounters(ctx, *manager)
	if err != nil {
		return DiskReads{}, err
	}
	from := began.Add(perfSample) // a sample is named by its end
	res, err := methods.QueryPerf(ctx, s, &types.QueryPerf{This: *manager, QuerySpec: []types.PerfQuerySpec{{
		Entity: moRef("HostSystem", host), StartTime: &from, EndTime: &ended, IntervalId: int32(perfSample / time.Second),
		MetricId: []types.PerfMetricId{{CounterId: requests, Instance: "*"}, {CounterId: kib, Instance: "*"}},
	}}})
	if err != nil {
		return DiskReads{}, fmt.Errorf("ask host %s for its disk counters: %w", host, classify(err))
	}
	var reads DiskReads
	for _, entity := range res.Returnval {
		if metric, ok := entity.(*types.PerfEntityMetric); ok {
			reads = sumOf(metric, requests, kib)
		}
	}
	if reads.Samples == 0 {
		return reads, fault.New(fault.Unsupported, "the host has no sample of the time")
	}
	return reads, nil
}

// diskCounters finds the keys of the counters: they are another on each server.
func (s *hostController) diskCounters(ctx context.Context, manager types.ManagedObjectReference) (requests, kib int32, err error) {
	var m mo.PerformanceManager
	if err := s.readProperties(ctx, manager, &m, "perfCounter"); err != nil {
		return 0, 0, fmt.Errorf("list performance counters: %w", classify(err))
	}
	for _, c := range m.PerfCounter {
		if c.GroupInfo.GetElementDescription().Key != perfGroup || c.RollupType != types.PerfSummaryTypeAverage {
			continue
		}
		switch c.NameInfo.GetElementDescription().Key {
		case perfRequests:
			requests = c.Key
		case perfKiB:
			kib = c.Key
		}
	}
	if requests == 0 || kib == 0 {
		return 0, 0, fault.New(fault.Unsupported, "the host does not count reads of its disks")
	}
	return requests, kib, nil
}

// sumOf adds the devices up, each by the mean of its samples. A sample that was not taken is
// negative. The instance without a name is the sum already, where there is one.
func sumOf(metric *types.PerfEntityMetric, requests, kib int32) (reads DiskReads) {
	sums := map[int32]map[bool]float64{requests: {}, kib: {}}
	for _, v := range metric.Value {
		series, ok := v.(*types.PerfMetricIntSeries)
		if !ok || sums[series.Id.CounterId] == nil {
			continue
		}
		mean, n := meanOf(series.Value)
		sums[series.Id.CounterId][series.Id.Instance == ""] += mean
		reads.Samples = max(reads.Samples, n)
	}
	total := func(counter int32) float64 { return max(sums[counter][true], sums[counter][false]) }
	reads.PerSecond, reads.Bytes = total(requests), total(kib)*1024
	return reads
}

func meanOf(samples []int64) (mean float64, n int) {
	var sum int64
	for _, v := range samples {
		if v >= 0 {
			sum, n = sum+v, n+1
		}
	}
	if n == 0 {
		return 0, 0
	}
	return float64(sum) / float64(n), n
}
