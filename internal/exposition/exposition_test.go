package exposition

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func TestTextIsSortedAndEscaped(t *testing.T) {
	latency := NewDistribution([]float64{0.1, 1})
	for _, v := range []float64{0.1, 0.5, 7} {
		latency.Observe(v)
	}
	text := Text([]Family{
		{Name: "z_info", Help: "A \\ and a\nline.", Type: Gauge, Labels: []string{"b", "a"}, Metrics: []Metric{
			{Labels: []string{"x", "2"}, Value: 1}, {Labels: []string{"\"q\"\\\n", "1"}, Value: math.Inf(-1)}, {Labels: []string{"bad \xff", "1"}, Value: math.NaN()},
		}},
		{Name: "empty", Help: "It has no metrics.", Type: Counter},
		{Name: "a_seconds", Help: "Latency.", Type: Histogram, Labels: []string{"route"}, Metrics: []Metric{latency.Metric("GET /")}},
		{Name: "m_seconds", Help: "Pauses.", Type: Summary, Metrics: []Metric{{Value: 1.5e9, Count: 3, Points: []Point{{0, 0}, {0.5, 0.25}}}}},
		{Name: "n_total", Help: "Plain.", Type: Counter, Metrics: []Metric{{Value: 5e6}}},
	})
	const want = `# HELP a_seconds Latency.
# TYPE a_seconds histogram
a_seconds_bucket{route="GET /",le="0.1"} 1
a_seconds_bucket{route="GET /",le="1"} 2
a_seconds_bucket{route="GET /",le="+Inf"} 3
a_seconds_sum{route="GET /"} 7.6
a_seconds_count{route="GET /"} 3
# HELP m_seconds Pauses.
# TYPE m_seconds summary
m_seconds{quantile="0"} 0
m_seconds{quantile="0.5"} 0.25
m_seconds_sum 1.5e+09
m_seconds_count 3
# HELP n_total Plain.
# TYPE n_total counter
n_total 5e+06
# HELP z_info A \\ and a\nline.
# TYPE z_info gauge
z_info{a="1",b="\"q\"\\\n"} -Inf
z_info{a="1",b="bad ` + "\uFFFD" + `"} NaN
z_info{a="2",b="x"} 1
`
	if string(text) != want {
		t.Errorf("text is\n%s\nwant\n%s", text, want)
	}
}

// prometheusText returns the text of a registry as the Prometheus library writes it.
func prometheusText(t *testing.T, r *prometheus.Registry) string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// Text writes metrics with random values, labels and times like the Prometheus library.
func TestTextEqualsThatOfPrometheus(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	word := func() string {
		letters := []rune("ab\\\"\n{},= é漢")
		runes := make([]rune, rng.IntN(6))
		for i := range runes {
			runes[i] = letters[rng.IntN(len(letters))]
		}
		return string(runes)
	}
	value := func() float64 {
		return []float64{0, 1, -1, 0.1, 5e-324, 1e300, math.Inf(1), math.Inf(-1), math.NaN(), float64(rng.Uint64()), rng.NormFloat64()}[rng.IntN(11)]
	}
	for range 200 {
		help := "h" + word()
		gauges := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "g", Help: help}, []string{"b", "a", "c"})
		times := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "d_seconds", Help: help, Buckets: LatencyBounds}, []string{"route"})
		registry := prometheus.NewRegistry()
		registry.MustRegister(gauges, times)
		g := Family{Name: "g", Help: help, Type: Gauge, Labels: []string{"b", "a", "c"}}
		d := Family{Name: "d_seconds", Help: help, Type: Histogram, Labels: []string{"route"}}
		used := map[[3]string]bool{}
		for range rng.IntN(8) {
			labels := [3]string{word(), word(), word()}
			if used[labels] {
				continue
			}
			used[labels] = true
			v := value()
			gauges.WithLabelValues(labels[:]...).Set(v)
			g.Add(v, labels[:]...)
		}
		for i := range rng.IntN(3) {
			route := fmt.Sprint(word(), i)
			took := NewDistribution(LatencyBounds)
			for range rng.IntN(20) {
				v := []float64{rng.ExpFloat64(), LatencyBounds[rng.IntN(len(LatencyBounds))], 11, -1}[rng.IntN(4)]
				times.WithLabelValues(route).Observe(v)
				took.Observe(v)
			}
			times.WithLabelValues(route)
			d.Metrics = append(d.Metrics, took.Metric(route))
		}
		if got, want := string(Text([]Family{g, d})), prometheusText(t, registry); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func parseText(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// Runtime and Process return the same families as the collectors of Prometheus. Counters are between two readings of
// those collectors, and constant values are equal.
func TestRuntimeAndProcessMatchPrometheus(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(200))
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	debug.FreeOSMemory() // runs a garbage collection, so that its metrics are not 0
	before := parseText(t, prometheusText(t, registry))
	ours := parseText(t, string(Text(append(Runtime(), Process()...))))
	after := parseText(t, prometheusText(t, registry))
	if got, want := slices.Sorted(maps.Keys(ours)), slices.Sorted(maps.Keys(before)); !slices.Equal(got, want) {
		t.Fatalf("families %v\nwant %v", got, want)
	}
	constant := []string{
		"go_info", "go_gc_gogc_percent", "go_gc_gomemlimit_bytes", "go_sched_gomaxprocs_threads",
		"process_max_fds", "process_start_time_seconds", "process_virtual_memory_max_bytes",
	}
	for name, f := range ours {
		was, is := before[name], after[name]
		if f.GetHelp() != was.GetHelp() || f.GetType() != was.GetType() {
			t.Errorf("%s is %s %q, want %s %q", name, f.GetType(), f.GetHelp(), was.GetType(), was.GetHelp())
		}
		low, got, high := was.GetMetric()[0], f.GetMetric()[0], is.GetMetric()[0]
		switch {
		case f.GetType() == dto.MetricType_SUMMARY:
			if n := got.GetSummary().GetSampleCount(); n < low.GetSummary().GetSampleCount() || n > high.GetSummary().GetSampleCount() || len(got.GetSummary().GetQuantile()) != 5 {
				t.Errorf("%s is %v, want between %v and %v", name, got, low, high)
			}
		case f.GetType() == dto.MetricType_COUNTER:
			if v := got.GetCounter().GetValue(); v < low.GetCounter().GetValue() || v > high.GetCounter().GetValue() {
				t.Errorf("%s is %v, want between %v and %v", name, got, low, high)
			}
		case slices.Contains(constant, name):
			if got.String() != low.String() {
				t.Errorf("%s is %v, want %v", name, got, low)
			}
		case got.GetGauge().GetValue() <= 0:
			t.Errorf("%s is %v, want more than 0", name, got)
		}
	}
}

// The help of each memory metric names the runtime metrics whose sum it is.
func TestHelpOfMemoryMetricsNamesTheSummands(t *testing.T) {
	names := regexp.MustCompile(`/[a-z/-]+:[a-z]+`)
	for _, m := range runtimeMetrics {
		help := strings.ReplaceAll(m.help, "/memory/classes/total:byte.", "/memory/classes/total:bytes.")
		if got := names.FindAllString(help, -1); !slices.Equal(got, m.of) {
			t.Errorf("the help of %s names %v, want %v", m.name, got, m.of)
		}
	}
}

func TestOpenFilesAreCounted(t *testing.T) {
	count := func() float64 {
		return parseText(t, string(Text(Process())))["process_open_fds"].GetMetric()[0].GetGauge().GetValue()
	}
	before := count()
	for range 10 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	if got := count(); got != before+10 {
		t.Errorf("%v files are open, want %v", got, before+10)
	}
}
