package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A collector is a server that records exported spans. Package test/otlp uses a real one.
type collector struct {
	*httptest.Server
	mu       sync.Mutex    // guards the fields below
	answers  []int         // next responses; 200 when it is empty
	requests []http.Header // headers of all requests
	spans    []span        // accepted spans
	body     string        // body of its responses
}

func newCollector(t testing.TB, answers ...int) *collector {
	c := &collector{answers: answers, body: "{}"}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

// ServeHTTP implements http.Handler.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var got exportRequest
	text, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r.Header)
	code := 200
	if len(c.answers) > 0 {
		code, c.answers = c.answers[0], c.answers[1:]
	}
	if code == 200 && json.Unmarshal(text, &got) != nil {
		code = 400
	}
	if code == 200 {
		c.spans = append(c.spans, got.ResourceSpans[0].ScopeSpans[0].Spans...)
	}
	w.WriteHeader(code)
	_, _ = io.WriteString(w, c.body)
}

// received returns the names of the accepted spans.
func (c *collector) received() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		names = append(names, s.Name)
	}
	return names
}

// UnmarshalJSON reads a time as MarshalJSON writes it.
func (n *nanos) UnmarshalJSON(text []byte) error {
	var ns int64
	_, err := fmt.Sscanf(strings.Trim(string(text), `"`), "%d", &ns)
	*n = nanos(time.Unix(0, ns))
	return err
}

// newTestTracer returns a tracer for an endpoint, and its log.
func newTestTracer(t testing.TB, endpoint string) (*Tracer, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20s3cr3t", "OTEL_EXPORTER_OTLP_TIMEOUT": "2000"}
	c, err := readConfig(func(name string) string { return env[name] }, "1")
	must(t, err)
	x := newExporter(*c, "1", slog.New(slog.NewTextHandler(log, nil)))
	x.pause, x.batch = time.Millisecond, time.Millisecond
	return newTracer(x), log
}

var start = time.Unix(1_800_000_000, 0)

// passEvents passes events of run r to a tracer, one second apart.
func passEvents(tracer *Tracer, events ...journal.Event) {
	for i, e := range events {
		e.Run, e.Time = "r", start.Add(time.Duration(i)*time.Second)
		tracer.HandleEvent(e)
	}
}

// spanTree returns the spans as lines: the path from the root, the seconds of start and end, and the status.
func spanTree(spans []span) (lines []string) {
	byID := map[string]span{}
	for _, s := range spans {
		byID[s.SpanID] = s
	}
	for _, s := range spans {
		path := s.Name
		for p, ok := byID[s.ParentSpanID]; ok; p, ok = byID[p.ParentSpanID] {
			path = p.Name + "/" + path
		}
		lines = append(lines, fmt.Sprintf("%s %v-%v %d", path, time.Time(s.Start).Sub(start).Seconds(), time.Time(s.End).Sub(start).Seconds(), s.Status.Code))
	}
	slices.Sort(lines)
	return lines
}

func stepEvent(kind journal.EventKind, name string) journal.Event {
	return journal.Event{Kind: kind, Step: name}
}

func TestSpansOfAColdRun(t *testing.T) {
	c := newCollector(t)
	tracer, log := newTestTracer(t, c.URL)
	tracer.StartRun("r", Run{VM: "web01"})
	passEvents(tracer, stepEvent(journal.RunStarted, ""), stepEvent(journal.StepStarted, "copy"),
		journal.Event{Kind: journal.DiskStarted, Step: "copy", Disk: 2000},
		journal.Event{Kind: journal.Progressed, Step: "copy", Disk: 2000, Bytes: &journal.Bytes{Total: 100, Done: 100, Read: 90}},
		journal.Event{Kind: journal.DiskDone, Step: "copy", Disk: 2000}, stepEvent(journal.StepDone, "copy"),
		stepEvent(journal.StepStarted, "verify"),
		journal.Event{Kind: journal.Progressed, Step: "verify", Disk: 2000, Bytes: &journal.Bytes{Total: 100, Done: 50, Read: 50}},
		stepEvent(journal.StepDone, "verify"), journal.Event{Kind: journal.RunDone})
	tracer.EndRun("r")
	tracer.Close()
	want := []string{"run 0-9 1", "run/step copy 1-5 0", "run/step copy/disk 2-4 0", "run/step verify 6-8 0", "run/step verify/disk 7-8 0"}
	if got := spanTree(c.spans); !slices.Equal(got, want) {
		t.Errorf("spans\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	i := slices.IndexFunc(c.spans, func(s span) bool { return s.Name == "disk" && time.Time(s.Start).Equal(start.Add(2*time.Second)) })
	if rate := attributeOf(c.spans[i], "decamp.rate"); rate != "45" {
		t.Errorf("rate of 90 bytes in 2 seconds is %q, want 45", rate)
	}
	if c.requests[0].Get("Authorization") != "Bearer s3cr3t" || c.requests[0].Get("Content-Type") != "application/json" || log.Len() > 0 {
		t.Errorf("headers %v, log %s", c.requests[0], log)
	}
}

// attributeOf returns the value of an attribute as text.
func attributeOf(s span, key string) string {
	for _, a := range s.Attributes {
		switch {
		case a.Key != key:
		case a.Value.Text != nil:
			return *a.Value.Text
		case a.Value.Int != nil:
			return *a.Value.Int
		case a.Value.Double != nil:
			return fmt.Sprint(*a.Value.Double)
		case a.Value.Bool != nil:
			return fmt.Sprint(*a.Value.Bool)
		}
	}
	return ""
}

func TestSpansOfAWarmRunHaveRounds(t *testing.T) {
	c := newCollector(t)
	tracer, _ := newTestTracer(t, c.URL)
	tracer.StartRun("r", Run{})
	passEvents(tracer, stepEvent(journal.RunStarted, ""), stepEvent(journal.StepStarted, "track"), stepEvent(journal.StepStarted, "snapshot"), stepEvent(journal.StepStarted, "round"),
		journal.Event{Kind: journal.RoundDone, Step: "round", OutageEstimate: &journal.OutageEstimate{Delta: 7, Outage: 90 * time.Second}},
		stepEvent(journal.StepStarted, "verify round"), stepEvent(journal.StepStarted, "wait"), stepEvent(journal.StepStarted, "snapshot"), stepEvent(journal.StepStarted, "wait"),
		stepEvent(journal.StepStarted, "power off"), stepEvent(journal.StepStarted, "last round"), stepEvent(journal.StepStarted, "detect"),
		journal.Event{Kind: journal.Summarized, Outage: &journal.Outage{Took: 30 * time.Second}}, journal.Event{Kind: journal.RunDone})
	tracer.Close()
	want := []string{
		"run 0-13 1", "run/round 10-11 0", "run/round 2-6 0", "run/round 7-8 0", "run/round/step last round 10-11 0", "run/round/step round 3-5 0", "run/round/step snapshot 2-3 0",
		"run/round/step snapshot 7-8 0", "run/round/step verify round 5-6 0", "run/step detect 11-13 0", "run/step power off 9-10 0", "run/step track 1-2 0", "run/step wait 6-7 0", "run/step wait 8-9 0",
	}
	if got := spanTree(c.spans); !slices.Equal(got, want) {
		t.Errorf("spans\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, s := range c.spans {
		if s.Name == "run" && attributeOf(s, "decamp.outage") != "30" || s.Name == "round" && attributeOf(s, "decamp.round") == "1" && attributeOf(s, "decamp.outage.estimate") != "90" {
			t.Errorf("%s has %v", s.Name, s.Attributes)
		}
	}
}

// The spans of a stopped run end with its error. The next attempt belongs to the same trace.
func TestAttemptsOfARunShareATrace(t *testing.T) {
	c := newCollector(t)
	tracer, _ := newTestTracer(t, c.URL)
	tracer.StartRun("r", Run{})
	events := []journal.Event{{Kind: journal.RunStarted}, stepEvent(journal.StepStarted, "copy"),
		{Kind: journal.Warned, Step: "copy", Warning: &inventory.Warning{Code: "slow", Text: "slow disk"}}, {Kind: journal.Waiting, Step: "copy"},
		{Kind: journal.RunStopped, Failure: &journal.Failure{Kind: "canceled", Text: "stopped", Hint: "run it again"}}}
	passEvents(tracer, events...)
	passEvents(tracer, events...)
	tracer.Close()
	if len(c.spans) != 4 || c.spans[0].TraceID != c.spans[3].TraceID || c.spans[1].SpanID == c.spans[3].SpanID {
		t.Fatalf("spans %+v", c.spans)
	}
	for _, s := range c.spans {
		if s.Status != (status{statusError, "stopped"}) || attributeOf(s, "error.type") != "canceled" || attributeOf(s, "decamp.remedy") != "run it again" {
			t.Errorf("%s: %+v", s.Name, s)
		}
	}
	if events := c.spans[0].Events; len(events) != 1 || events[0].Name != "warning" {
		t.Errorf("events %+v", events)
	}
}

// Processes of a fleet derive the same trace and the same parent without communicating.
func TestRunsOfAPlanHaveItsSpanAsParent(t *testing.T) {
	c := newCollector(t)
	worker, _ := newTestTracer(t, c.URL)
	server, _ := newTestTracer(t, c.URL)
	plan := Plan{Name: "wave", Created: start}
	worker.StartRun("r", Run{Plan: plan, VM: "web01"})
	passEvents(worker, journal.Event{Kind: journal.RunStarted}, journal.Event{Kind: journal.RunDone})
	worker.Close()
	server.EndPlan(PlanEnd{Plan: plan, Ended: start.Add(time.Minute), VMs: map[string]int{"done": 1}})
	server.Close()
	if got := spanTree(c.spans); !slices.Equal(got, []string{"plan 0-60 0", "plan/run 0-1 1"}) || c.spans[0].TraceID != c.spans[1].TraceID || attributeOf(c.spans[1], "decamp.vms.done") != "1" {
		t.Errorf("spans %q, %+v", got, c.spans)
	}
	other, _ := Plan{Name: "wave", Created: start.Add(time.Second)}.ids()
	if other == c.spans[0].TraceID {
		t.Error("a plan of the same name that was submitted later has the same trace")
	}
}

// While the collector is down, nothing blocks, one warning is logged, and the queue is bounded.
func TestUnreachableCollectorCausesOneWarning(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	tracer, log := newTestTracer(t, closed.URL)
	for range 3 * maxQueue {
		tracer.EndPlan(PlanEnd{Plan: Plan{Name: "p"}, Ended: start})
	}
	tracer.exporter.mu.Lock()
	queued := len(tracer.exporter.queue)
	tracer.exporter.mu.Unlock()
	if queued > maxQueue {
		t.Errorf("%d spans are queued, want at most %d", queued, maxQueue)
	}
	tracer.Close()
	if n := strings.Count(log.String(), "traces are not exported"); n != 1 {
		t.Errorf("%d warnings, want 1: %s", n, log)
	}
	if want := fmt.Sprintf("traces were not exported\" spans=%d", 3*maxQueue); !strings.Contains(log.String(), want) || strings.Contains(log.String(), "s3cr3t") {
		t.Errorf("log does not contain %q, or contains the secret: %s", want, log)
	}
}

func TestTraceExportRetriesTemporaryErrors(t *testing.T) {
	for name, c := range map[string]struct {
		answers []int
		body    string
		spans   int
		log     string
	}{
		"overloaded": {[]int{503, 429, 502, 504}, "{}", 1, "traces are exported again"},
		"refused":    {[]int{400}, "{}", 0, "HTTP 400"},
		"redirect":   {[]int{307}, "{}", 0, "HTTP 307"},
		"partial":    {nil, `{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "no"}}`, 1, "not accept all traces\" endpoint="},
		"empty":      {nil, "", 1, ""},
	} {
		server := newCollector(t, c.answers...)
		server.body = c.body
		tracer, log := newTestTracer(t, server.URL)
		tracer.EndPlan(PlanEnd{Plan: Plan{Name: "p"}, Ended: start})
		for deadline := time.Now().Add(10 * time.Minute); len(server.received()) < c.spans && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		}
		tracer.Close()
		if got := len(server.received()); got != c.spans || !strings.Contains(log.String(), c.log) || c.log == "" && log.Len() > 0 {
			t.Errorf("%s: %d spans, log %s", name, got, log)
		}
	}
}

// A collector that does not respond delays the end of a command by at most closeTime. It does not delay events.
func TestHangingCollectorDoesNotDelayEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	release := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer hanging.Close()
	defer close(release)
	tracer, log := newTestTracer(t, hanging.URL)
	tracer.StartRun("r", Run{})
	passEvents(tracer, journal.Event{Kind: journal.RunStarted}, journal.Event{Kind: journal.RunDone})
	ended := make(chan struct{})
	go func() { tracer.Close(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(10 * time.Minute):
		t.Fatal("the tracer does not close")
	}
	if !strings.Contains(log.String(), "traces were not exported") {
		t.Errorf("no warning in the log: %s", log)
	}
}

func TestConfigurationOfTheEnvironment(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for name, c := range map[string]struct {
		env  map[string]string
		want string // endpoint; "" if traces are off
	}{
		"nothing":  {nil, ""},
		"all":      {map[string]string{endpoint: "http://c:4318/"}, "http://c:4318/v1/traces"},
		"traces":   {map[string]string{endpoint: "http://c:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://t/x"}, "https://t/x"},
		"disabled": {map[string]string{endpoint: "http://c:4318", "OTEL_SDK_DISABLED": "TRUE"}, ""},
		"none":     {map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, ""},
	} {
		got, err := readConfig(func(name string) string { return c.env[name] }, "1")
		if err != nil || (got == nil) != (c.want == "") || got != nil && got.endpoint != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	bad := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(bad, []byte("no certificate"), 0o600))
	for name, text := range map[string]string{
		endpoint: "c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_COMPRESSION": "zstd", "OTEL_EXPORTER_OTLP_TIMEOUT": "10s",
		"OTEL_EXPORTER_OTLP_HEADERS": "s3cr3t", "OTEL_RESOURCE_ATTRIBUTES": "=x", "OTEL_EXPORTER_OTLP_CERTIFICATE": bad, "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE": "/nowhere",
	} {
		env := map[string]string{endpoint: "http://c:4318"}
		env[name] = text
		tracer, err := New(func(name string) string { return env[name] }, "1", slog.New(slog.DiscardHandler))
		if tracer != nil || !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s=%s: got %v, want Invalid with a hint", name, text, err)
		}
	}
}

func TestNilTracerIgnoresAllCalls(t *testing.T) {
	var tracer *Tracer
	tracer.StartRun("r", Run{})
	passEvents(tracer, journal.Event{Kind: journal.RunStarted})
	tracer.EndPlan(PlanEnd{})
	tracer.EndRun("r")
	tracer.Close()
}

func TestEventsOfASpanAreBounded(t *testing.T) {
	c := newCollector(t)
	tracer, _ := newTestTracer(t, c.URL)
	tracer.StartRun("r", Run{})
	passEvents(tracer, journal.Event{Kind: journal.RunStarted})
	for range 10 * maxEvents {
		tracer.HandleEvent(journal.Event{Run: "r", Time: start, Kind: journal.Noted, Message: "x"})
	}
	passEvents(tracer, journal.Event{Kind: journal.RunDone})
	tracer.Close()
	if s := c.spans[0]; len(s.Events) != maxEvents || s.DroppedEvents != 9*maxEvents {
		t.Errorf("%d events and %d dropped, want %d and %d", len(s.Events), s.DroppedEvents, maxEvents, 9*maxEvents)
	}
}
