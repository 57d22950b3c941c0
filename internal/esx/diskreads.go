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

// DiskReads contains the reads of all disks of a host, by all of its VMs and services.
type DiskReads struct {
	PerSecond float64 // mean number of read requests per second
	Bytes     float64 // mean bytes read per second
	Samples   int     // number of samples in the means
}

// perfSample is the length of a host's real-time samples. The host keeps them for an
// hour.
const perfSample = 20 * time.Second

// The counters of a host's disks, by their names in the group. Each instance of a
// counter is a device.
const (
	perfGroup    = "disk"               // group of the counters
	perfRequests = "numberReadAveraged" // read requests per second
	perfKiB      = "read"               // KiB read per second
)

// DiskReads returns a host's disk reads between two times in the past. It uses the 20 s
// samples that are completely within the interval. The error is fault.Unsupported if
// there is no such sample, or if the host has no counters.
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
	// A sample that ends at from starts at began.
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

// diskCounters returns the keys of the two counters. Keys differ between servers.
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

// sumOf adds the means of all devices. If the host reports an instance without a name,
// that instance is the total, and it replaces the sum of the devices if it is larger.
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

// meanOf returns the mean and the number of the samples. A negative sample is missing
// and is not counted. n is 0 if all are missing.
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
