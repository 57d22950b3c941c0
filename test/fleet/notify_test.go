package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab"
)

// A notice is a notification as a webhook receives it.
type notice struct {
	ID, Kind, VM string
	Outage       *struct{ EstimateSeconds float64 }
}

// Two servers send one notification of a due cutover and one of the end of a plan. The webhook is down for a time, and
// the server that has the lease is killed. The runs of the worker are in the trace of the plan, which a server exports.
func TestServersNotifyAndTrace(t *testing.T) {
	t.Parallel()
	spans := newSpans(t)
	notices, down := make(chan notice, 100), atomic.Bool{}
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n notice
		if text, err := io.ReadAll(r.Body); err != nil || down.Load() || json.Unmarshal(text, &n) != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		notices <- n
	}))
	t.Cleanup(hook.Close)
	next := func() notice {
		select {
		case n := <-notices:
			return n
		case <-time.After(waitTimeout):
			t.Fatal("no notification")
			return notice{}
		}
	}

	r := newPostgresEnv(t, lab.Config{VMs: []lab.VM{runningVM("warm1", 101)}})
	r.environ = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + spans.URL}
	key := r.writeFile("ops.key", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqr\n")
	file := r.writeFile("notify.yaml", fmt.Sprintf("version: 1\nreceivers: {ops: {webhook: {url: %q, secretFile: %q}}}\n", hook.URL, key))
	first := r.startServer("127.0.0.1:0", "--notify", file)
	second := startProcess(t, r.commandIn(filepath.Join(r.dir, "second"), "serve", "--json", "--listen", "127.0.0.1:0", "--name", "second", "--notify", file))
	second.waitForOutput(second.out, "serving")
	a := r.startWorker("a", r.vmFolder())
	r.submitPlan(r.writePlan("wave", "defaults: {to: [dir:"+r.vmFolder()+"]}\nvms:\n  - {vm: warm1, mode: warm, transport: nfc, warm: {interval: 1s}}\n  - {vm: gone}\n"))
	got := []notice{next(), next()}
	slices.SortFunc(got, func(a, b notice) int { return strings.Compare(a.Kind, b.Kind) })
	if got[0].Kind != "cutover-due" || got[0].VM != "warm1" || got[1].Kind != "vm-failed" || got[1].VM != "gone" {
		t.Fatalf("received %+v", got)
	}

	down.Store(true)
	r.run("cutover", "wave/warm1").wantExit(0)
	r.waitFor("wave", "ended", func(v view) bool { return v.plan.State.IsFinal() })
	first.kill() // one of the two servers has the lease
	down.Store(false)
	if n := next(); n.Kind != "plan-failed" {
		t.Errorf("received %+v", n)
	}
	delivered := func() bool { // recorded after the response
		counts, err := r.database().Notifications.Counts(t.Context())
		must(t, err)
		return len(counts) == 1 && counts[0].Count == 3
	}
	eventually(t, "the last delivery is recorded", delivered)
	if code := a.stop(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	if code := second.stop(); code != 0 {
		t.Errorf("the second server ended with %d", code)
	}
	counts, err := r.database().Notifications.Counts(t.Context())
	must(t, err)
	if len(counts) != 1 || counts[0].State != fleetdb.Delivered || counts[0].Count != 3 || len(notices) > 0 {
		t.Errorf("counts are %+v with %d more notifications, want 3 delivered", counts, len(notices))
	}
	spans.checkOneTrace("run", "round", "step round", "step last round", "step commit", "disk")
}

// spans is an HTTP server that collects traces.
type spans struct {
	*httptest.Server
	t       *testing.T
	mu      sync.Mutex        // guards the fields below
	trace   map[string]string // trace of each span, by its ID
	names   map[string]string // name of each span, by its ID
	parents map[string]string // parent of each span, by its ID
}

func newSpans(t *testing.T) *spans {
	s := &spans{t: t, trace: map[string]string{}, names: map[string]string{}, parents: map[string]string{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var request struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []struct{ TraceID, SpanID, ParentSpanID, Name string }
				}
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, each := range request.ResourceSpans[0].ScopeSpans[0].Spans {
			s.trace[each.SpanID], s.names[each.SpanID], s.parents[each.SpanID] = each.TraceID, each.Name, each.ParentSpanID
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// checkOneTrace checks that spans of these names exist, and that all are in one trace. The parent of a run is the plan,
// which the killed server may not have exported.
func (s *spans) checkOneTrace(names ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	found, traces := map[string]bool{}, map[string]bool{}
	for id, name := range s.names {
		found[name], traces[s.trace[id]] = true, true
		if parent := s.names[s.parents[id]]; name == "run" && parent != "plan" && parent != "" || name == "round" && parent != "run" || name == "step round" && parent != "round" {
			s.t.Errorf("the parent of %s is %s", name, parent)
		}
	}
	for _, name := range names {
		if !found[name] {
			s.t.Errorf("no span %q in %v", name, s.names)
		}
	}
	if len(traces) != 1 {
		s.t.Errorf("%d traces, want 1", len(traces))
	}
}
