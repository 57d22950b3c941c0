package server

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/decamp/decamp/internal/roster"
)

// metrics are what is counted here. What the roster says is read when it is asked for.
//
// The library is Prometheus's own. VictoriaMetrics/metrics adds 0.4 MB to the binary instead of
// 2.9 (measured), but the releases with Prometheus's histograms (1.38 to 1.41) write to standard
// error when the program starts, of every command, where the kernel has no PSI.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	sent     prometheus.Counter // bytes of events
	lost     prometheus.Counter // clients that did not read
	refused  prometheus.Counter

	mu    sync.Mutex
	moved map[string]int64     // bytes by plan
	was   map[roster.Key]int64 // Moved of each VM, when it was asked last
}

func newMetrics(version string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), moved: map[string]int64{}, was: map[roster.Key]int64{}}
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "decamp_http_requests_total", Help: "Requests that were answered."}, []string{"route", "code"})
	m.took = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "decamp_http_request_duration_seconds", Help: "From the header of a request to the end of its answer; without event streams.", Buckets: prometheus.DefBuckets,
	}, []string{"route"})
	m.sent = counter("decamp_event_sent_bytes_total", "Bytes of events that were sent to clients.")
	m.lost = counter("decamp_event_clients_dropped_total", "Clients of the event stream that did not read, and were dropped.")
	m.refused = counter("decamp_http_refusals_total", "Requests that were refused: no token, a wrong one, or not the role.")
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "decamp_build_info", Help: "The release that serves.", ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.registry.MustRegister(m.requests, m.took, m.sent, m.lost, m.refused, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// served counts an answered request. route is the pattern, never what was asked for:
// strangers choose that.
func (m *metrics) served(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	if !strings.HasSuffix(route, eventPath) {
		m.took.WithLabelValues(route).Observe(took.Seconds())
	}
}

// metricsHandler serves the metrics.
type metricsHandler struct {
	gate    *gate
	metrics *metrics
	plans   *roster.Plans
	workers *roster.Workers
	limits  *roster.Limits
	cache   *fleetCache
	hub     *hub
}

// ServeHTTP answers in the text format that the request accepts.
func (h *metricsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := h.gate.permit(r, View, "read the metrics", r.URL.Path); err != nil {
		problemOf(err).write(w)
		return
	}
	now, err := h.measure(r.Context())
	if err != nil {
		problemOf(err).write(w)
		return
	}
	fleet := prometheus.NewRegistry()
	fleet.MustRegister(now)
	promhttp.HandlerFor(prometheus.Gatherers{h.metrics.registry, fleet}, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
}

// measured is what the roster said at one moment, as metrics.
type measured []prometheus.Metric

// Describe says nothing: what there is depends on what the fleet has.
func (measured) Describe(chan<- *prometheus.Desc) {}

// Collect hands out what was read.
func (m measured) Collect(to chan<- prometheus.Metric) {
	for _, x := range m {
		to <- x
	}
}

// A family is metrics of one name.
type family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) family {
	return family{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func (f family) add(to *measured, value float64, labels ...string) {
	*to = append(*to, prometheus.MustNewConstMetric(f.desc, f.kind, value, labels...))
}

// Families that the roster has the values of.
var (
	planInfo    = gauge("decamp_plan_info", "Plans, and where they stand.", "plan", "state")
	planVMs     = gauge("decamp_plan_vms", "VMs of a plan by state.", "plan", "state")
	workerUp    = gauge("decamp_worker_up", "1: its lease is alive.", "worker", "version")
	workerDrain = gauge("decamp_worker_draining", "1: it is given nothing more.", "worker")
	workerSlots = gauge("decamp_worker_slots", "VMs that a worker drives at once, at most.", "worker")
	limitUnits  = gauge("decamp_limit_units", "Capacities, and rates in bytes a second, that operators set.", "limit")
	capacities  = gauge("decamp_resource_capacity_units", "Of what VMs need a share of to begin.", "resource")
	used        = gauge("decamp_resource_used_units", "Of it in use.", "resource")
	waiting     = gauge("decamp_resource_waiting_vms", "VMs in line that need it.", "resource")
	clients     = gauge("decamp_event_clients", "Clients that follow the events.")
	diskBytes   = gauge("decamp_transfer_disk_bytes", "Of the disks of VMs that were begun.", "plan")
	heldBytes   = gauge("decamp_transfer_held_bytes", "Of them that are held or proven.", "plan")
	rates       = gauge("decamp_transfer_rate_bytes_per_second", "Bytes read from the source, lately; reading images back is not counted.", "plan")
	movedBytes  = family{prometheus.NewDesc("decamp_transfer_bytes_total", "Bytes read from the source since this server was first asked; zeros that need no reading are not counted.", []string{"plan"}, nil), prometheus.CounterValue}
)

// measure reads what the roster says.
func (h *metricsHandler) measure(ctx context.Context) (m measured, err error) {
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
	b, err := h.cache.read(ctx)
	if err != nil {
		return nil, err
	}
	m.plans(plans)
	m.workers(workers)
	m.limits(limits, b.board)
	m.transfers(h.metrics.transfers(b.progress))
	clients.add(&m, float64(h.hub.listening()))
	return m, nil
}

func (m *measured) plans(plans []roster.Plan) {
	for _, p := range plans {
		planInfo.add(m, 1, p.Name, string(p.State))
		for _, state := range states {
			planVMs.add(m, float64(p.Counts[state]), p.Name, string(state))
		}
	}
}

// states are all that a VM can be in, in the order of its life.
var states = []roster.State{roster.Queued, roster.Assigned, roster.Running, roster.Stranded, roster.Done, roster.Failed, roster.Canceled}

func (m *measured) workers(workers []roster.Worker) {
	for _, x := range workers {
		workerUp.add(m, number(x.Alive), x.Name, x.Version)
		workerDrain.add(m, number(x.Drains), x.Name)
		workerSlots.add(m, float64(x.VMs), x.Name)
	}
}

func (m *measured) limits(limits []roster.Limit, board Board) {
	for _, l := range limits {
		limitUnits.add(m, float64(l.Units), l.Name)
	}
	for _, r := range board.Resources {
		capacities.add(m, float64(r.Capacity), r.Name)
		used.add(m, float64(r.Used), r.Name)
		waiting.add(m, float64(r.Waiting), r.Name)
	}
}

// moving is what the progress of a plan's VMs comes to.
type moving struct{ total, done, rate, moved int64 }

func (m *measured) transfers(plans map[string]moving) {
	for _, name := range slices.Sorted(maps.Keys(plans)) {
		t := plans[name]
		diskBytes.add(m, float64(t.total), name)
		heldBytes.add(m, float64(t.done), name)
		rates.add(m, float64(t.rate), name)
		movedBytes.add(m, float64(t.moved), name)
	}
}

// transfers adds up by plan, and counts what was moved since it was asked last. A VM that has
// less than before has another worker, which counts from zero.
func (m *metrics) transfers(progress []roster.Progress) map[string]moving {
	m.mu.Lock()
	defer m.mu.Unlock()
	plans, now := map[string]moving{}, make(map[roster.Key]int64, len(progress))
	for _, p := range progress {
		if before, known := m.was[p.Key]; known && p.Moved > before {
			m.moved[p.Plan] += p.Moved - before
		}
		now[p.Key] = p.Moved
		t := plans[p.Plan]
		t.total, t.done, t.rate, t.moved = t.total+p.Total, t.done+p.Done, t.rate+p.Rate, m.moved[p.Plan]
		plans[p.Plan] = t
	}
	m.was = now
	return plans
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
