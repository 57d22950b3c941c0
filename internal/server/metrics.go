package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/exposition"
	"github.com/decamp/decamp/internal/fleetdb"
)

// metricsHandler serves the metrics.
type metricsHandler struct {
	gate    *gate            // authorizes requests
	metrics *metrics         // counters of this process
	plans   *fleetdb.Plans   // plans with their counts
	workers *fleetdb.Workers // workers and their leases
	limits  *fleetdb.Limits  // limits of operators
	cache   *fleetCache      // progress and scheduler state
	hub     *hub             // number of event clients

	notifications *fleetdb.Notifications // queue of notifications
}

// ServeHTTP returns the metrics in the text format, which every Prometheus accepts.
func (h *metricsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := h.gate.permitRequest(r, View, "read the metrics", r.URL.Path); err != nil {
		problemOf(err).writeTo(w)
		return
	}
	families, err := h.readFamilies(r.Context())
	if err != nil {
		problemOf(err).writeTo(w)
		return
	}
	families = append(families, h.metrics.counterFamilies()...)
	families = append(families, exposition.Runtime()...)
	text := exposition.Text(append(families, exposition.Process()...))
	w.Header().Set("Content-Type", exposition.ContentType)
	if acceptsGzip(r.Header) {
		w.Header().Set("Content-Encoding", "gzip")
		text = gzipText(text)
	}
	_, _ = w.Write(text) // the client is gone if it fails
}

// acceptsGzip reports whether a client accepts a compressed response (RFC 9110, section 12.5.3).
func acceptsGzip(h http.Header) bool {
	for coding := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, q, weighted := strings.Cut(coding, ";")
		if name = strings.TrimSpace(name); name != "gzip" && name != "*" {
			continue
		}
		weight, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(q), "q="), 64)
		return !weighted || err == nil && weight > 0
	}
	return false
}

// gzipText compresses text in memory.
func gzipText(text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(text) // into memory
	_ = z.Close()
	return b.Bytes()
}

// readFamilies returns the metrics that are read from the database.
func (h *metricsHandler) readFamilies(ctx context.Context) ([]exposition.Family, error) {
	plans, err := h.plans.List(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := h.workers.List(ctx)
	if err != nil {
		return nil, err
	}
	limits, err := h.limits.List(ctx)
	if err != nil {
		return nil, err
	}
	state, err := h.cache.readState(ctx)
	if err != nil {
		return nil, err
	}
	counts, err := h.notifications.Counts(ctx)
	if err != nil {
		return nil, err
	}
	clients := newGauge("decamp_event_clients", "Clients that follow the events.")
	clients.Add(float64(h.hub.clientCount()))
	families := append(planFamilies(plans), workerFamilies(workers)...)
	families = append(families, limitFamilies(limits, state.scheduler)...)
	families = append(families, notificationFamily(counts))
	return append(append(families, transferFamilies(h.metrics.addTransfers(state.progress))...), clients), nil
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
	up := newGauge("decamp_worker_up", "1: its lease is alive.", "worker", "version")
	draining := newGauge("decamp_worker_draining", "1: it gets no more VMs.", "worker")
	slots := newGauge("decamp_worker_slots", "VMs that a worker drives at once, at most.", "worker")
	for _, x := range workers {
		up.Add(boolValue(x.Alive), x.Name, x.Version)
		draining.Add(boolValue(x.Drains), x.Name)
		slots.Add(float64(x.VMs), x.Name)
	}
	return []exposition.Family{up, draining, slots}
}

// limitFamilies returns the limits and the use of resources.
func limitFamilies(limits []fleetdb.Limit, scheduler SchedulerState) []exposition.Family {
	units := newGauge("decamp_limit_units", "Capacities, and rates in bytes a second, that operators set.", "limit")
	capacity := newGauge("decamp_resource_capacity_units", "Units of a resource that VMs need to begin.", "resource")
	used := newGauge("decamp_resource_used_units", "Units of a resource that are in use.", "resource")
	waiting := newGauge("decamp_resource_waiting_vms", "VMs that wait for a resource.", "resource")
	for _, l := range limits {
		units.Add(float64(l.Units), l.Name)
	}
	for _, r := range scheduler.Resources {
		capacity.Add(float64(r.Capacity), r.Name)
		used.Add(float64(r.Used), r.Name)
		waiting.Add(float64(r.Waiting), r.Name)
	}
	return []exposition.Family{units, capacity, used, waiting}
}

// transferFamilies returns the sums of the progress, by plan.
func transferFamilies(plans map[string]transferSums) []exposition.Family {
	total := newGauge("decamp_transfer_disk_bytes", "Size of the disks of VMs that were started.", "plan")
	held := newGauge("decamp_transfer_written_bytes", "Bytes of these disks that are written or verified.", "plan")
	rate := newGauge("decamp_transfer_rate_bytes_per_second", "Bytes read from the source, lately; reading images back is not counted.", "plan")
	moved := newCounter("decamp_transfer_bytes_total", "Bytes read from the source since this server was first asked; zeros that need no reading are not counted.", "plan")
	for name, t := range plans {
		total.Add(float64(t.total), name)
		held.Add(float64(t.done), name)
		rate.Add(float64(t.rate), name)
		moved.Add(float64(t.moved), name)
	}
	return []exposition.Family{total, held, rate, moved}
}

// boolValue returns 1 for true and 0 for false.
func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
