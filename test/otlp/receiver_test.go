package otlp

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/trace"
)

// startReceiver starts the collector's receiver for OTLP over HTTP. It returns its URL and the received traces.
func startReceiver(t *testing.T) (endpoint string, received *consumertest.TracesSink) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	factory := otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	cfg.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = addr
	received = &consumertest.TracesSink{}
	r, err := factory.CreateTraces(t.Context(), receivertest.NewNopSettings(factory.Type()), cfg, received)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(context.Background(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Shutdown(context.Background()) })
	return "http://" + addr, received
}

// The collector receives a warm run of a plan with all spans, IDs, times and attributes.
func TestCollectorAcceptsTraces(t *testing.T) {
	for _, compression := range []string{"none", "gzip"} {
		endpoint, received := startReceiver(t)
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_COMPRESSION": compression, "OTEL_SERVICE_NAME": "movers", "OTEL_RESOURCE_ATTRIBUTES": "site=K%C3%B6ln"}
		tracer, err := trace.New(func(name string) string { return env[name] }, "1.2.3", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Unix(1_800_000_000, 123_456_789)
		plan := trace.Plan{Name: "wave", Created: began.Add(-time.Minute)}
		tracer.StartRun("web01-1f", trace.Run{Plan: plan, VM: "web01", Ref: "vm-42", Source: "esx1:443", Worker: "w1"})
		for i, e := range []journal.Event{
			{Kind: journal.RunStarted}, {Kind: journal.StepStarted, Step: "snapshot"}, {Kind: journal.StepDone, Step: "snapshot"},
			{Kind: journal.StepStarted, Step: "round"},
			{Kind: journal.Progressed, Step: "round", Disk: 2000, Bytes: &journal.Bytes{Total: 1 << 40, Done: 5, Read: 4e9, Rate: 1e9, Busy: bottleneck.Busy{Source: 0.9}}},
			{Kind: journal.DiskDone, Step: "round", Disk: 2000, Message: "root"},
			{Kind: journal.StepRetried, Step: "round", Failure: &journal.Failure{Kind: "transient", Text: "reset"}},
			{Kind: journal.RunFailed, Failure: &journal.Failure{Kind: "full", Text: "no space", Hint: "free some"}},
		} {
			e.Run, e.Time = "web01-1f", began.Add(time.Duration(i)*time.Second)
			tracer.HandleEvent(e)
		}
		tracer.EndPlan(trace.PlanEnd{Plan: plan, Ended: began.Add(time.Hour), VMs: map[string]int{"failed": 1}})
		tracer.Close()

		spans := map[string]ptrace.Span{}
		for _, each := range received.AllTraces() {
			for _, rs := range each.ResourceSpans().All() {
				for key, want := range map[string]string{"service.name": "movers", "service.version": "1.2.3", "site": "Köln"} {
					if got, _ := rs.Resource().Attributes().Get(key); got.AsString() != want {
						t.Errorf("%s: %s is %q", compression, key, got.AsString())
					}
				}
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						spans[s.Name()] = s
					}
				}
			}
		}
		if len(spans) != 6 {
			t.Fatalf("%s: %d spans: %v", compression, len(spans), spans)
		}
		for child, parent := range map[string]string{"run": "plan", "round": "run", "step snapshot": "round", "step round": "round", "disk": "step round"} {
			if spans[child].ParentSpanID() != spans[parent].SpanID() || spans[child].TraceID() != spans["plan"].TraceID() || spans[child].SpanID().IsEmpty() {
				t.Errorf("%s: the parent of %s is %v", compression, child, spans[child].ParentSpanID())
			}
		}
		disk, run := spans["disk"], spans["run"]
		if disk.StartTimestamp().AsTime() != began.Add(4*time.Second).UTC() || disk.EndTimestamp().AsTime() != began.Add(5*time.Second).UTC() {
			t.Errorf("%s: disk from %v to %v", compression, disk.StartTimestamp(), disk.EndTimestamp())
		}
		for key, want := range map[string]pcommon.Value{
			"decamp.rate": pcommon.NewValueInt(4e9), "decamp.disk.bytes": pcommon.NewValueInt(1 << 40), "decamp.bottleneck": pcommon.NewValueStr("source"),
			"decamp.bottleneck.share": pcommon.NewValueDouble(0.9), "decamp.run.id": pcommon.NewValueStr("web01-1f"),
		} {
			if got, _ := disk.Attributes().Get(key); !got.Equal(want) {
				t.Errorf("%s: %s is %v", compression, key, got.AsRaw())
			}
		}
		if kind, _ := run.Attributes().Get("error.type"); run.Status().Code() != ptrace.StatusCodeError || run.Status().Message() != "no space" || kind.AsString() != "full" {
			t.Errorf("%s: status %v, %v", compression, run.Status(), kind)
		}
		if last, _ := spans["round"].Attributes().Get("decamp.round.last"); last.Type() != pcommon.ValueTypeBool {
			t.Errorf("%s: decamp.round.last is %v", compression, last.Type())
		}
		if events := spans["step round"].Events(); events.Len() != 1 || events.At(0).Name() != "step-retried" {
			t.Errorf("%s: events %v", compression, events.Len())
		}
	}
}
