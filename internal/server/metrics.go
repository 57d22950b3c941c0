package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/exposition"
	"github.com/decamp/decamp/internal/roster"
)

// metrics are what this process counts. What the database holds is read for each request. It is safe for
// concurrent use.
type metrics struct {
	version string
	sent    atomic.Int64 // bytes of events
	lost    atomic.Int64 // clients that did not read
	refused atomic.Int64

	mu       sync.Mutex
	requests map[answered]int64
	took     map[string]*exposition.Distribution // seconds, by route
	moved    map[string]int64                    // bytes by plan
	was      map[roster.Key]int64                // Moved of each VM, when it was asked last
}

// answered is a kind of answer to requests.
type answered struct {
	route  string // the pattern, never what was asked for: strangers choose that
	status int
}

func newMetrics(version string) *metrics {
	return &metrics{
		version: version, requests: map[answered]int64{}, took: map[string]*exposition.Distribution{},
		moved: map[string]int64{}, was: map[roster.Key]int64{},
	}
}

// served counts an answered request.
func (m *metrics) served(route string, status int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[answered{route, status}]++
	if strings.HasSuffix(route, eventPath) {
		return
	}
	if m.took[route] == nil {
		m.took[route] = exposition.NewDistribution(exposition.LatencyBounds)
	}
	m.took[route].Observe(took.Seconds())
}

// families returns what was counted until now.
func (m *metrics) families() []exposition.Family {
	requests := counter("decamp_http_requests_total", "Requests that were answered.", "route", "code")
	took := exposition.Family{
		Name: "decamp_http_request_duration_seconds", Help: "From the header of a request to the end of its answer; without event streams.",
		Type: exposition.Histogram, Labels: []string{"route"},
	}
	sent := counter("decamp_event_sent_bytes_total", "Bytes of events that were sent to clients.")
	lost := counter("decamp_event_clients_dropped_total", "Clients of the event stream that did not read, and were dropped.")
	refused := counter("decamp_http_refusals_total", "Requests that were refused: no token, a wrong one, or not the role.")
	build := gauge("decamp_build_info", "The release that serves.", "version")
	m.mu.Lock()
	defer m.mu.Unlock()
	for of, n := range m.requests {
		requests.Add(float64(n), of.route, strconv.Itoa(of.status))
	}
	for route, d := range m.took {
		took.Metrics = append(took.Metrics, d.Metric(route))
	}
	sent.Add(float64(m.sent.Load()))
	lost.Add(float64(m.lost.Load()))
	refused.Add(float64(m.refused.Load()))
	build.Add(1, m.version)
	return []exposition.Family{requests, took, sent, lost, refused, build}
}

func counter(name, help string, labels ...string) exposition.Family {
	return exposition.Family{Name: name, Help: help, Type: exposition.Counter, Labels: labels}
}

func gauge(name, help string, labels ...string) exposition.Family {
	return exposition.Family{Name: name, Help: help, Type: exposition.Gauge, Labels: labels}
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

// ServeHTTP answers in the text format, which every Prometheus accepts.
func (h *metricsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := h.gate.permit(r, View, "read the metrics", r.URL.Path); err != nil {
		problemOf(err).write(w)
		return
	}
	families, err := h.measure(r.Context())
	if err != nil {
		problemOf(err).write(w)
		return
	}
	families = append(families, h.metrics.families()...)
	families = append(families, exposition.Runtime()...)
	text := exposition.Text(append(families, exposition.Process()...))
	w.Header().Set("Content-Type", exposition.ContentType)
	if acceptsGzip(r.Header) {
		w.Header().Set("Content-Encoding", "gzip")
		text = compress(text)
	}
	_, _ = w.Write(text) // the client is gone if it fails
}

// acceptsGzip reports whether a client accepts a compressed answer.
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

func compress(text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(text) // into memory
	_ = z.Close()
	return b.Bytes()
}

// measure reads what the database holds.
func (h *metricsHandler) measure(ctx context.Context) ([]exposition.Family, error) {
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
	state, err := h.cache.read(ctx)
	if err != nil {
		return nil, err
	}
	clients := gauge("decamp_event_clients", "Clients that follow the events.")
	clients.Add(float64(h.hub.listening()))
	families := append(planFamilies(plans), workerFamilies(workers)...)
	families = append(families, limitFamilies(limits, state.board)...)
	return append(append(families, transferFamilies(h.metrics.transfers(state.progress))...), clients), nil
}

func planFamilies(plans []roster.Plan) []exposition.Family {
	info := gauge("decamp_plan_info", "Plans, and where they stand.", "plan", "state")
	vms := gauge("decamp_plan_vms", "VMs of a plan by state.", "plan", "state")
	for _, p := range plans {
		info.Add(1, p.Name, string(p.State))
		for _, state := range states {
			vms.Add(float64(p.Counts[state]), p.Name, string(state))
		}
	}
	return []exposition.Family{info, vms}
}

// states are all that a VM can be in, in the order of its life.
var states = []roster.State{roster.Queued, roster.Assigned, roster.Running, roster.Stranded, roster.Done, roster.Failed, roster.Canceled}

func workerFamilies(workers []roster.Worker) []exposition.Family {
	up := gauge("decamp_worker_up", "1: its lease is alive.", "worker", "version")
	draining := gauge("decamp_worker_draining", "1: it is given nothing more.", "worker")
	slots := gauge("decamp_worker_slots", "VMs that a worker drives at once, at most.", "worker")
	for _, x := range workers {
		up.Add(number(x.Alive), x.Name, x.Version)
		draining.Add(number(x.Drains), x.Name)
		slots.Add(float64(x.VMs), x.Name)
	}
	return []exposition.Family{up, draining, slots}
}

func limitFamilies(limits []roster.Limit, board Board) []exposition.Family {
	units := gauge("decamp_limit_units", "Capacities, and rates in bytes a second, that operators set.", "limit")
	capacity := gauge("decamp_resource_capacity_units", "Of what VMs need a share of to begin.", "resource")
	used := gauge("decamp_resource_used_units", "Of it in use.", "resource")
	waiting := gauge("decamp_resource_waiting_vms", "VMs in line that need it.", "resource")
	for _, l := range limits {
		units.Add(float64(l.Units), l.Name)
	}
	for _, r := range board.Resources {
		capacity.Add(float64(r.Capacity), r.Name)
		used.Add(float64(r.Used), r.Name)
		waiting.Add(float64(r.Waiting), r.Name)
	}
	return []exposition.Family{units, capacity, used, waiting}
}

// moving is what the progress of a plan's VMs comes to.
type moving struct{ total, done, rate, moved int64 }

func transferFamilies(plans map[string]moving) []exposition.Family {
	total := gauge("decamp_transfer_disk_bytes", "Of the disks of VMs that were begun.", "plan")
	held := gauge("decamp_transfer_held_bytes", "Of them that are held or proven.", "plan")
	rate := gauge("decamp_transfer_rate_bytes_per_second", "Bytes read from the source, lately; reading images back is not counted.", "plan")
	moved := counter("decamp_transfer_bytes_total", "Bytes read from the source since this server was first asked; zeros that need no reading are not counted.", "plan")
	for name, t := range plans {
		total.Add(float64(t.total), name)
		held.Add(float64(t.done), name)
		rate.Add(float64(t.rate), name)
		moved.Add(float64(t.moved), name)
	}
	return []exposition.Family{total, held, rate, moved}
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
