package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/lab"
)

// exportedSpan is a span as a collector receives it.
type exportedSpan struct{ TraceID, SpanID, ParentSpanID, Name string }

// startCollector starts a collector, and returns its URL and a function that returns what it received.
func startCollector(t *testing.T) (url string, received func() []exportedSpan) {
	t.Helper()
	var mu sync.Mutex
	var spans []exportedSpan
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var request struct {
			ResourceSpans []struct {
				ScopeSpans []struct{ Spans []exportedSpan }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		spans = append(spans, request.ResourceSpans[0].ScopeSpans[0].Spans...)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []exportedSpan {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(spans)
	}
}

// spanPaths returns the paths of the spans from their root, without duplicates.
func spanPaths(spans []exportedSpan) (all []string) {
	byID := map[string]exportedSpan{}
	for _, s := range spans {
		byID[s.SpanID] = s
	}
	for _, s := range spans {
		path := s.Name
		for p, ok := byID[s.ParentSpanID]; ok; p, ok = byID[p.ParentSpanID] {
			path = p.Name + "/" + path
		}
		all = append(all, path)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestMigrationsAndPlansAreTraced(t *testing.T) {
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01"), smallVM("web02")}})
	url, received := startCollector(t)
	c.vars["OTEL_EXPORTER_OTLP_ENDPOINT"] = url
	if code := c.runArgs("migrate", c.url(), "web01", "--to", "dir:"+t.TempDir()); code != 0 {
		t.Fatalf("migrate: exit code %d: %s", code, c.stderr())
	}
	run := []string{"run", "run/step commit", "run/step convert", "run/step copy", "run/step copy/disk", "run/step detect", "run/step verify", "run/step verify/disk"}
	if got := spanPaths(received()); len(slices.DeleteFunc(slices.Clone(run), func(p string) bool { return slices.Contains(got, p) })) > 0 {
		t.Errorf("migrate: spans %q, want %q", got, run)
	}
	url, received = startCollector(t)
	c.vars["OTEL_EXPORTER_OTLP_ENDPOINT"] = url
	plan := writeFile(t, "plan.yaml", fmt.Sprintf("version: 1\nname: p\nsource: {url: %q, fingerprint: %q}\nselect: name ~ *\ndefaults: {to: [%q]}\n", c.url(), c.lab.Fingerprint(), "dir:"+c.to))
	if code := c.run(t.Context(), []string{"plan", "run", plan, "--state", c.assembler.State}); code != 0 {
		t.Fatalf("plan run: exit code %d: %s", code, c.stderr())
	}
	got := spanPaths(received())
	for _, each := range run {
		if !slices.Contains(got, "plan/"+each) {
			t.Errorf("plan run: no plan/%s in %q", each, got)
		}
	}
	for _, s := range received() {
		if s.TraceID != received()[0].TraceID {
			t.Errorf("span %s has another trace ID", s.Name)
		}
	}
}

// A collector that is down causes one warning, and the migration succeeds.
func TestMigrationsSucceedWithoutTheCollector(t *testing.T) {
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01")}})
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	c.vars["OTEL_EXPORTER_OTLP_ENDPOINT"] = closed.URL
	if code := c.runArgs("migrate", c.url(), "web01", "--to", "dir:"+c.to); code != 0 {
		t.Errorf("migrate: exit code %d: %s", code, c.stderr())
	}
	if n := strings.Count(c.stderr(), "traces are not exported"); n != 1 {
		t.Errorf("got %d warnings, want 1: %s", n, c.stderr())
	}
	c.vars["OTEL_EXPORTER_OTLP_ENDPOINT"] = "collector:4317"
	if code := c.runArgs("ls", c.url()); code != 0 || !strings.Contains(c.stderr(), "the endpoint for traces is not a URL") {
		t.Errorf("ls: exit code %d: %s", code, c.stderr())
	}
}
