package server

import (
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/exposition"
)

// metrics are the values that this process counts. Values from the database are read for each request.
// It is safe for concurrent use.
type metrics struct {
	version string       // release of decamp
	sent    atomic.Int64 // bytes of events
	lost    atomic.Int64 // clients that were dropped because they did not read
	refused atomic.Int64 // requests that were refused

	mu       sync.Mutex                          // guards the fields below
	requests map[responseKey]int64               // requests by route and status
	took     map[string]*exposition.Distribution // duration of requests in seconds, by route
}

// responseKey identifies responses that are counted together.
type responseKey struct {
	route  string // the pattern of the route, never the path of the request, which any client can choose
	status int    // HTTP status
}

// newMetrics returns metrics without counts.
func newMetrics(version string) *metrics {
	return &metrics{version: version, requests: map[responseKey]int64{}, took: map[string]*exposition.Distribution{}}
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
	requests := newCounter("decamp_http_requests_total", "Requests by route and status of the response.", "route", "code")
	took := newHistogram("decamp_http_request_duration_seconds", "Time from the header of a request to the end of its response, without event streams.", "route")
	sent := newCounter("decamp_event_sent_bytes_total", "Bytes of events that were sent to clients.")
	lost := newCounter("decamp_event_clients_dropped_total", "Clients of the event stream that were dropped because they did not read.")
	refused := newCounter("decamp_http_refusals_total", "Requests that were refused: no token, a wrong token, or a missing role.")
	build := newGauge("decamp_build_info", "Release of this server, the commit and the release of Go that it was built from.", "version", "commit", "goversion")
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
	build.Add(1, m.version, buildCommit(), runtime.Version())
	return []exposition.Family{requests, took, sent, lost, refused, build}
}

// buildCommit returns the commit that this program was built from; "unknown" if the build did not record
// it.
func buildCommit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}

// newHistogram returns an empty family of histograms.
func newHistogram(name, help string, labels ...string) exposition.Family {
	return exposition.Family{Name: name, Help: help, Type: exposition.Histogram, Labels: labels}
}

// newCounter returns an empty family of counters.
func newCounter(name, help string, labels ...string) exposition.Family {
	return exposition.Family{Name: name, Help: help, Type: exposition.Counter, Labels: labels}
}

// newGauge returns an empty family of gauges.
func newGauge(name, help string, labels ...string) exposition.Family {
	return exposition.Family{Name: name, Help: help, Type: exposition.Gauge, Labels: labels}
}
