package server

import (
	"context"
	"math"
	"strings"

	"github.com/decamp/decamp/internal/exposition"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
)

// readFamilies returns the metrics that are read from the database.
func (h *metricsHandler) readFamilies(ctx context.Context) ([]exposition.Family, error) {
	plans, err := h.fleet.Plans.List(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := h.fleet.Workers.List(ctx)
	if err != nil {
		return nil, err
	}
	limits, err := h.fleet.Limits.List(ctx)
	if err != nil {
		return nil, err
	}
	totals, err := h.fleet.Counters.Totals(ctx)
	if err != nil {
		return nil, err
	}
	state, err := h.cache.readState(ctx)
	if err != nil {
		return nil, err
	}
	silent, err := h.silentVMs(ctx, state)
	if err != nil {
		return nil, err
	}
	notified, err := h.fleet.Notifications.Counts(ctx)
	if err != nil {
		return nil, err
	}
	families := append(planFamilies(plans), workerFamilies(workers)...)
	families = append(families, resourceFamilies(limits, state.scheduler)...)
	families = append(families, notificationFamily(notified))
	families = append(families, transferFamilies(plans, state.progress, silent, totals.Read)...)
	return append(families, totalFamilies(totals)...), nil
}

// silentVMs returns the number of VMs by plan whose transfer has no news. It reads rows of VMs only if a
// report is old.
func (h *metricsHandler) silentVMs(ctx context.Context, state *fleetState) (map[string]int, error) {
	silent := map[string]int{}
	for _, p := range state.progress {
		if !p.Silent {
			continue
		}
		running, err := h.fleet.VMs.List(ctx, fleetdb.Query{States: []fleetdb.State{fleetdb.Running}})
		for _, vm := range running {
			if it := state.itemOf(vm); fleet.SilenceText(vm, it.Progress) != "" {
				silent[vm.Plan]++
			}
		}
		return silent, err
	}
	return silent, nil
}

// planFamilies returns the states of plans and of their VMs.
func planFamilies(plans []fleetdb.Plan) []exposition.Family {
	info := newGauge("decamp_plan_info", "Plans by state.", "plan", "state")
	vms := newGauge("decamp_plan_vms", "VMs of a plan by state.", "plan", "state")
	for _, p := range plans {
		info.Add(1, p.Name, string(p.State))
		for _, state := range states {
			vms.Add(float64(p.Counts[state]), p.Name, string(state))
		}
	}
	return []exposition.Family{info, vms}
}

// workerFamilies returns the states and the slots of workers.
func workerFamilies(workers []fleetdb.Worker) []exposition.Family {
	up := newGauge("decamp_worker_up", "Whether the lease of a worker is valid.", "worker", "version")
	draining := newGauge("decamp_worker_draining", "Whether a worker gets no further VMs.", "worker")
	slots := newGauge("decamp_worker_slots", "Maximum number of VMs that a worker migrates at a time.", "worker")
	for _, x := range workers {
		up.Add(boolValue(x.Alive), x.Name, x.Version)
		draining.Add(boolValue(x.Drains), x.Name)
		slots.Add(float64(x.VMs), x.Name)
	}
	return []exposition.Family{up, draining, slots}
}

// resourceLabels are the labels of metrics about resources.
var resourceLabels = []string{"kind", "name", "unit"}

// splitResource returns the resourceLabels of a resource or limit: "host", "esx1" and "vms" for
// host:esx1/vms.
func splitResource(resource string) (kind, name, unit string) {
	name = resource
	if at := strings.LastIndexByte(name, '/'); at >= 0 {
		name, unit = name[:at], name[at+1:]
	}
	if before, after, ok := strings.Cut(name, ":"); ok {
		kind, name = before, after
	}
	return kind, name, unit
}

// resourceFamilies returns the limits and the use of resources. A resource without a limit has no
// capacity.
func resourceFamilies(limits []fleetdb.Limit, scheduler SchedulerState) []exposition.Family {
	units := newGauge("decamp_limit_units", "Capacities that operators set.", resourceLabels...)
	rates := newGauge("decamp_limit_bytes_per_second", "Rates that operators set.", "kind", "name")
	capacity := newGauge("decamp_resource_capacity_units", "Units of a resource that VMs need to begin; missing if it has no limit.", resourceLabels...)
	used := newGauge("decamp_resource_used_units", "Units of a resource that are in use.", resourceLabels...)
	waiting := newGauge("decamp_resource_waiting_vms", "VMs that wait for a resource.", resourceLabels...)
	for _, l := range limits {
		kind, name, unit := splitResource(l.Name)
		if unit == "rate" {
			rates.Add(float64(l.Units), kind, name)
		} else {
			units.Add(float64(l.Units), kind, name, unit)
		}
	}
	for _, r := range scheduler.Resources {
		kind, name, unit := splitResource(r.Name)
		if r.Capacity != unlimited {
			capacity.Add(float64(r.Capacity), kind, name, unit)
		}
		used.Add(float64(r.Used), kind, name, unit)
		waiting.Add(float64(r.Waiting), kind, name, unit)
	}
	return []exposition.Family{units, rates, capacity, used, waiting}
}

// unlimited is the capacity of a resource that is counted and has no limit.
const unlimited = math.MaxInt64

// transferFamilies returns the progress of plans: the sums over their VMs.
func transferFamilies(plans []fleetdb.Plan, progress []fleetdb.Progress, silent map[string]int, read map[string]int64) []exposition.Family {
	size := newGauge("decamp_transfer_disk_bytes", "Size of the disks of VMs that are migrated now.", "plan")
	written := newGauge("decamp_transfer_written_bytes", "Bytes of these disks that are written or verified.", "plan")
	rate := newGauge("decamp_transfer_rate_bytes_per_second", "Bytes read from the source per second, over the last five seconds. Reading images back is not counted.", "plan")
	quiet := newGauge("decamp_transfer_silent_vms", "VMs whose transfer has had no progress for ten seconds or longer.", "plan")
	total := newCounter("decamp_transfer_bytes_total", "Bytes read from the source since the plan was submitted. Zeros that need no reading are not counted.", "plan")
	type sums struct{ size, written, rate int64 }
	of := map[string]sums{}
	for _, p := range progress {
		t := of[p.Plan]
		of[p.Plan] = sums{t.size + p.Total, t.written + p.Done, t.rate + p.Rate}
	}
	for _, p := range plans {
		t := of[p.Name]
		size.Add(float64(t.size), p.Name)
		written.Add(float64(t.written), p.Name)
		rate.Add(float64(t.rate), p.Name)
		quiet.Add(float64(silent[p.Name]), p.Name)
		total.Add(float64(read[p.Name]), p.Name)
	}
	return []exposition.Family{size, written, rate, quiet, total}
}

// totalFamilies returns the counters of the whole fleet. All of them begin with 0, so that the first failure
// of a kind is an increase.
func totalFamilies(t fleetdb.Totals) []exposition.Family {
	attempts := newCounter("decamp_vm_attempts_total", "Ended attempts at VMs, by result.", "result")
	for _, result := range fleetdb.AttemptResults {
		attempts.Add(float64(t.Attempts[result]), string(result))
	}
	failures := newCounter("decamp_vm_failures_total", "Failed attempts at VMs, by kind of the error.", "kind")
	for _, kind := range fault.Kinds() {
		failures.Add(float64(t.Failures[kind.String()]), kind.String())
	}
	durations := newHistogram("decamp_vm_duration_seconds", "Time from the first attempt at a VM to its publication.", "mode")
	durations.Metrics = append(durations.Metrics, histogramOf(t.Cold, "cold"), histogramOf(t.Warm, "warm"))
	outages := newHistogram("decamp_vm_outage_seconds", "Time that a VM was off in the cutover of a warm run.")
	outages.Metrics = append(outages.Metrics, histogramOf(t.Outages))
	rates := newHistogram("decamp_disk_rate_bytes_per_second", "Rate at which disks of published VMs were read: each disk of a cold run, the fastest round of a warm run.")
	rates.Metrics = append(rates.Metrics, histogramOf(t.Rates))
	return []exposition.Family{attempts, failures, durations, outages, rates}
}

// histogramOf returns a histogram of the database as a metric. Its buckets are cumulative.
func histogramOf(h fleetdb.Histogram, labels ...string) exposition.Metric {
	m := exposition.Metric{Labels: labels, Value: h.Sum}
	for i, n := range h.Counts {
		m.Count += n
		if i < len(h.Bounds) {
			m.Points = append(m.Points, exposition.Point{At: h.Bounds[i], Value: float64(m.Count)})
		}
	}
	return m
}

// boolValue returns 1 for true and 0 for false.
func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
