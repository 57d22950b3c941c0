package server_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

func (r *rig) metrics() string {
	r.t.Helper()
	a := r.ask(server.View, "GET", "/metrics", "")
	if a.status != 200 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") {
		r.t.Fatalf("%d as %s", a.status, a.header.Get("Content-Type"))
	}
	return a.body
}

// queueNotification queues a notification for the receiver ops.
func (r *rig) queueNotification() {
	r.t.Helper()
	l, err := r.Database.Leases.Acquire(r.t.Context(), "notifier", "test", time.Hour)
	r.must(err)
	_, err = r.Database.Notifications.Add(r.t.Context(), l, 1, []fleetdb.Notification{{Receiver: "ops", ID: "evt_1"}})
	r.must(err)
}

func TestMetricsSayWhatTheFleetDoes(t *testing.T) {
	r := newRig(t, nil)
	r.plan("p", 5)
	claims := r.running("p", 2)
	r.must(r.Report(t.Context(), claims, 10))
	r.must(r.SetSchedulerState(t.Context(), server.SchedulerState{Resources: []server.Resource{{Name: "host:esx1/vms", Capacity: 20, Used: 2, Waiting: 3}}}))
	r.must(r.Database.Limits.Set(t.Context(), "host:esx1/rate", 5e6))
	r.queueNotification()
	first := r.metrics()
	for _, want := range []string{
		`decamp_plan_vms{plan="p",state="queued"} 3`, `decamp_plan_vms{plan="p",state="running"} 2`, `decamp_plan_vms{plan="p",state="failed"} 0`,
		`decamp_plan_info{plan="p",state="running"} 1`, `decamp_worker_up{version="test",worker="w1"} 1`, `decamp_worker_draining{worker="w1"} 0`,
		`decamp_limit_units{limit="host:esx1/rate"} 5e+06`, `decamp_resource_waiting_vms{resource="host:esx1/vms"} 3`,
		`decamp_transfer_rate_bytes_per_second{plan="p"} 2e+08`, `decamp_transfer_bytes_total{plan="p"} 0`, `decamp_event_clients 0`,
		`decamp_build_info{version="test"} 1`, `decamp_notifications{receiver="ops",state="pending"} 1`, `go_goroutines `, `process_cpu_seconds_total `,
	} {
		if !strings.Contains(first, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
	r.must(r.Report(t.Context(), claims[:1], 30))
	const half = servertest.Size / 10 // of a fifth of the disk: the rest are zeros
	moved := fmt.Sprintf(`decamp_transfer_bytes_total{plan="p"} %v`, float64(half))
	for !strings.Contains(r.metrics(), moved) { // progress is read a few times a second
		if t.Context().Err() != nil {
			t.Fatal("bytes that moved are not counted")
		}
	}
	if got := r.metrics(); !strings.Contains(got, `decamp_http_requests_total{code="200",route="GET /metrics"}`) {
		t.Error("requests are not counted")
	}
	if got := r.metrics(); !strings.Contains(got, `decamp_http_request_duration_seconds_bucket{route="GET /metrics",le="+Inf"}`) {
		t.Error("the times of requests are not counted")
	}
}

// A client that accepts gzip gets the same metrics compressed. Any other client gets text.
func TestMetricsAreCompressedForClientsThatAcceptIt(t *testing.T) {
	r := newRig(t, nil)
	for accepted, want := range map[string]bool{
		"gzip": true, "deflate, gzip;q=0.5": true, "*": true, "identity": false, "gzip;q=0": false, "gzip;q=x": false, "": false,
	} {
		a := r.askWith("GET", "/metrics", "", func(req *http.Request) {
			req.Header.Set("Authorization", "Bearer "+r.Tokens[server.View])
			req.Header.Set("Accept-Encoding", accepted) // so that the client does not decompress
			req.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3")
		})
		text := a.body
		if got := a.header.Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("Accept-Encoding %q: compressed is %v", accepted, got)
			continue
		}
		if want {
			z, err := gzip.NewReader(strings.NewReader(text))
			r.must(err)
			plain, err := io.ReadAll(z)
			r.must(err)
			text = string(plain)
		}
		if kind := a.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/plain; version=0.0.4; charset=utf-8") || !strings.Contains(text, "\ndecamp_build_info{version=\"test\"} 1\n") {
			t.Errorf("Accept-Encoding %q: %s with %d bytes", accepted, kind, len(text))
		}
	}
}

// The names are as the ecosystem has them, and all of ours are in the documentation.
func TestMetricsAreNamedAsTheyShouldBe(t *testing.T) {
	r := newRig(t, nil)
	r.plan("p", 1)
	r.must(r.Report(t.Context(), r.running("p", 1), 1))
	r.must(r.SetSchedulerState(t.Context(), server.SchedulerState{Resources: []server.Resource{{Name: "host:esx1/vms"}}}))
	r.must(r.Database.Limits.Set(t.Context(), "host:esx1/rate", 1))
	r.queueNotification()
	r.metrics() // counts the request that the next one shows
	text := r.metrics()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	r.must(err)
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "decamp_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	docs, err := os.ReadFile("../../docs/server.md")
	r.must(err)
	documented := names(string(docs), "`(decamp_[a-z_]+)")
	if told := names(text, `(?m)^# TYPE (decamp_[a-z_]+)`); !slices.Equal(told, documented) {
		t.Errorf("told      %v\ndocumented %v", told, documented)
	}
}

func names(text, pattern string) (all []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}
