package server

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/exposition"
	"github.com/decamp/decamp/internal/fleetdb"
)

// metrics are the values that this process counts. Values from the database are read for each request.
// It is safe for concurrent use.
type metrics struct {
	version string       // release of decamp
	sent    atomic.Int64 // bytes of events
	lost    atomic.Int64 // clients that were dropped because they did not read
	refused atomic.Int64 // requests that were refused

	mu        sync.Mutex                          // guards the fields below
	requests  map[responseKey]int64               // requests by route and status
	took      map[string]*exposition.Distribution // duration of requests in seconds, by route
	moved     map[string]int64                    // bytes read from sources, by plan
	lastMoved map[fleetdb.Key]int64               // Moved of each VM at the previous request for metrics
}

// responseKey identifies responses that are counted together.
type responseKey struct {
	route  string // the pattern of the route, never the path of the request, which any client can choose
	status int    // HTTP status
}

// newMetrics returns metrics without counts.
func newMetrics(version string) *metrics {
	return &metrics{
		version: version, requests: map[responseKey]int64{}, took: map[string]*exposition.Distribution{},
		moved: map[string]int64{}, lastMoved: map[fleetdb.Key]int64{},
	}
}

// countRequest counts a request after its response. Event streams have no duration.
func (m *metrics) countRequest(route string, status int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[responseKey{route, status}]++
	if strings.HasSuffix(route, eventPath) {
		return
	}
	if m.took[route] == nil {
		m.took[route] = exposition.NewDistribution(exposition.LatencyBounds)
	}
	m.took[route].Observe(took.Seconds())
}

// counterFamilies returns the counters of this process.
func (m *metrics) counterFamilies() []exposition.Family {
	requests := newCounter("decamp_http_requests_total", "Requests that were answered.", "route", "code")
	took := exposition.Family{
		Name: "decamp_http_request_duration_seconds", Help: "From the header of a request to the end of its answer; without event streams.",
		Type: exposition.Histogram, Labels: []string{"route"},
	}
	sent := newCounter("decamp_event_sent_bytes_total", "Bytes of events that were sent to clients.")
	lost := newCounter("decamp_event_clients_dropped_total", "Clients of the event stream that did not read, and were dropped.")
	refused := newCounter("decamp_http_refusals_total", "Requests that were refused: no token, a wrong token, or a missing role.")
	build := newGauge("decamp_build_info", "Release of this server.", "version")
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

// newCounter returns an empty family of counters.
func newCounter(name, help string, labels ...string) exposition.Family {
	return exposition.Family{Name: name, Help: help, Type: exposition.Counter, Labels: labels}
}

// newGauge returns an empty family of gauges.
func newGauge(name, help string, labels ...string) exposition.Family {
	return exposition.Family{Name: name, Help: help, Type: exposition.Gauge, Labels: labels}
}

// transferSums is the sum of the progress of a plan's VMs.
type transferSums struct{ total, done, rate, moved int64 }

// addTransfers adds the bytes that were read since the last call to the counters, and returns the sums
// by plan. A VM with fewer bytes than before has another worker, which counts from zero.
func (m *metrics) addTransfers(progress []fleetdb.Progress) map[string]transferSums {
	m.mu.Lock()
	defer m.mu.Unlock()
	plans, now := map[string]transferSums{}, make(map[fleetdb.Key]int64, len(progress))
	for _, p := range progress {
		if before, known := m.lastMoved[p.Key]; known && p.Read > before {
			m.moved[p.Plan] += p.Read - before
		}
		now[p.Key] = p.Read
		t := plans[p.Plan]
		t.total, t.done, t.rate, t.moved = t.total+p.Total, t.done+p.Done, t.rate+p.Rate, m.moved[p.Plan]
		plans[p.Plan] = t
	}
	m.lastMoved = now
	return plans
}
