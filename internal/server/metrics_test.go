package server_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

func (r *testServer) scrapeMetrics() string {
	r.t.Helper()
	a := r.sendAs(server.View, "GET", "/metrics", "")
	if a.status != 200 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") {
		r.t.Fatalf("got status %d, type %s", a.status, a.header.Get("Content-Type"))
	}
	return a.body
}

// queueNotification queues a notification for the receiver ops.
func (r *testServer) queueNotification() {
	r.t.Helper()
	l, err := r.Database.Leases.Acquire(r.t.Context(), "notifier", "test", time.Hour)
	r.must(err)
	_, err = r.Database.Notifications.Add(r.t.Context(), l, 1, []fleetdb.Notification{{Receiver: "ops", ID: "evt_1"}})
	r.must(err)
}

func TestMetricsReportFleetState(t *testing.T) {
	r := newTestServer(t, nil)
	r.addPlan("p", 5)
	claims := r.runVMs("p", 2)
	r.must(r.Report(t.Context(), claims, 10))
	r.must(r.SetSchedulerState(t.Context(), server.SchedulerState{Resources: []server.Resource{{Name: "host:esx1/vms", Capacity: 20, Used: 2, Waiting: 3}}}))
	r.must(r.Database.Limits.Set(t.Context(), "host:esx1/rate", 5e6))
	r.must(r.Database.Limits.Set(t.Context(), "worker:w1/vms", 4))
	r.queueNotification()
	first := r.scrapeMetrics()
	for _, want := range []string{
		`decamp_plan_vms{plan="p",state="queued"} 3`, `decamp_plan_vms{plan="p",state="running"} 2`, `decamp_plan_vms{plan="p",state="failed"} 0`,
		`decamp_plan_info{plan="p",state="running"} 1`, `decamp_worker_up{version="test",worker="w1"} 1`, `decamp_worker_draining{worker="w1"} 0`,
		`decamp_limit_bytes_per_second{kind="host",name="esx1"} 5e+06`, `decamp_limit_units{kind="worker",name="w1",unit="vms"} 4`, `decamp_resource_waiting_vms{kind="host",name="esx1",unit="vms"} 3`,
		`decamp_transfer_rate_bytes_per_second{plan="p"} 2e+08`, `decamp_transfer_silent_vms{plan="p"} 0`, `decamp_event_clients 0`, `decamp_database_up 1`,
		fmt.Sprintf(`decamp_transfer_bytes_total{plan="p"} %v`, float64(2*servertest.Size/20)),
		`decamp_build_info{commit="`, `decamp_notifications{receiver="ops",state="pending"} 1`, `version="test"} 1`, `go_goroutines `, `process_cpu_seconds_total `,
	} {
		if !strings.Contains(first, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if got := r.scrapeMetrics(); !strings.Contains(got, `decamp_http_requests_total{code="200",route="GET /metrics"}`) {
		t.Error("the metrics do not count requests")
	}
	if got := r.scrapeMetrics(); !strings.Contains(got, `decamp_http_request_duration_seconds_bucket{route="GET /metrics",le="+Inf"}`) {
		t.Error("the metrics do not have the durations of requests")
	}
}

// A client that accepts gzip gets the same metrics compressed. Any other client gets text.
func TestMetricsAreCompressedOnRequest(t *testing.T) {
	r := newTestServer(t, nil)
	for accepted, want := range map[string]bool{
		"gzip": true, "deflate, gzip;q=0.5": true, "*": true, "identity": false, "gzip;q=0": false, "gzip;q=x": false, "": false,
	} {
		a := r.send("GET", "/metrics", "", func(req *http.Request) {
			req.Header.Set("Authorization", "Bearer "+r.Tokens[server.View])
			req.Header.Set("Accept-Encoding", accepted) // so that the client does not decompress
			req.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3")
		})
		text := a.body
		if got := a.header.Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("Accept-Encoding %q: got compressed %v", accepted, got)
			continue
		}
		if want {
			z, err := gzip.NewReader(strings.NewReader(text))
			r.must(err)
			plain, err := io.ReadAll(z)
			r.must(err)
			text = string(plain)
		}
		if kind := a.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/plain; version=0.0.4; charset=utf-8") || !strings.Contains(text, "version=\"test\"} 1\n") {
			t.Errorf("Accept-Encoding %q: %s with %d bytes", accepted, kind, len(text))
		}
	}
}

// While the database does not respond, the metrics of the process are served, and one of them reports it.
func TestMetricsWithoutTheDatabase(t *testing.T) {
	r := newTestServer(t, nil)
	r.must(r.Database.Close())
	text := r.scrapeMetrics()
	for line, want := range map[string]bool{"decamp_database_up 0\n": true, "process_cpu_seconds_total ": true, "decamp_build_info{": true, "decamp_vm_failures_total": false} {
		if strings.Contains(text, "\n"+line) != want {
			t.Errorf("%q is in the metrics: %v, want %v", line, !want, want)
		}
	}
}

// A resource without a limit has no capacity: the largest integer is not a limit.
func TestUnlimitedResourceHasNoCapacity(t *testing.T) {
	r := newTestServer(t, nil)
	r.must(r.SetSchedulerState(t.Context(), server.SchedulerState{Resources: []server.Resource{
		{Name: "datastore:ssd1/vms", Capacity: math.MaxInt64, Used: 7}, {Name: "source:vc1:443/vms", Capacity: 0},
		{Name: "target:dir:/srv/vm/vms", Capacity: 3},
	}}))
	text := r.scrapeMetrics()
	want := []string{`decamp_resource_capacity_units{kind="source",name="vc1:443",unit="vms"} 0`, `decamp_resource_capacity_units{kind="target",name="dir:/srv/vm",unit="vms"} 3`}
	var got []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "decamp_resource_capacity_units") {
			got = append(got, strings.TrimSuffix(line, "\n"))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("capacities %q, want %q", got, want)
	}
	if used := `decamp_resource_used_units{kind="datastore",name="ssd1",unit="vms"} 7`; !strings.Contains(text, used) {
		t.Errorf("%s is missing", used)
	}
}

// The counter of each kind of failure starts at 0, so that the first failure is an increase. The counters
// continue after a restart of the server.
func TestCountersOfVMs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := newTestServer(t, nil)
	r.addPlan("p", 2)
	wantLines := func(wanted ...string) {
		t.Helper()
		text := r.scrapeMetrics()
		for _, want := range wanted {
			if !strings.Contains(text, "\n"+want+"\n") {
				t.Errorf("%s is missing", want)
			}
		}
	}
	for _, kind := range fault.Kinds() {
		wantLines(fmt.Sprintf(`decamp_vm_failures_total{kind="%s"} 0`, kind))
	}
	wantLines(`decamp_vm_attempts_total{result="done"} 0`, `decamp_transfer_bytes_total{plan="p"} 0`, `decamp_vm_outage_seconds_count 0`)
	claims := r.runVMs("p", 2)
	r.must(r.Report(t.Context(), claims, 10))
	r.must(r.Database.Claims.Finish(t.Context(), claims[0], fleetdb.End{State: fleetdb.Failed, Failure: &fleetdb.Failure{Kind: "denied"}}))
	r.must(r.Database.Claims.Finish(t.Context(), claims[1], fleetdb.End{State: fleetdb.Done, Summary: fleetdb.Summary{Outage: 42 * time.Second, Rates: []float64{2e8}}}))
	for range 2 {
		wantLines(`decamp_vm_failures_total{kind="denied"} 1`, `decamp_vm_attempts_total{result="done"} 1`, `decamp_vm_attempts_total{result="failed"} 1`,
			`decamp_vm_outage_seconds_bucket{le="30"} 0`, `decamp_vm_outage_seconds_bucket{le="60"} 1`, `decamp_vm_outage_seconds_bucket{le="+Inf"} 1`, `decamp_vm_outage_seconds_sum 42`,
			`decamp_vm_duration_seconds_count{mode="warm"} 1`, `decamp_vm_duration_seconds_count{mode="cold"} 0`, `decamp_disk_rate_bytes_per_second_bucket{le="2e+08"} 1`,
			fmt.Sprintf(`decamp_transfer_bytes_total{plan="p"} %v`, float64(2*servertest.Size/20)))
		r.must(r.Stop())
		r.must(r.Serve(context.Background(), nil))
	}
}

// A VM whose worker has reported nothing for ten seconds is counted as silent.
func TestSilentTransfersAreCounted(t *testing.T) {
	r := newTestServer(t, nil)
	r.addPlan("p", 2)
	r.must(r.Report(t.Context(), r.runVMs("p", 2), 10))
	r.Advance(11 * time.Second)
	for !strings.Contains(r.scrapeMetrics(), "\ndecamp_transfer_silent_vms{plan=\"p\"} 2\n") { // progress is read a few times a second
		if t.Context().Err() != nil {
			t.Fatal("no transfer is silent")
		}
	}
}
