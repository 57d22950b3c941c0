// Package monitoring tests the rules for Prometheus and the dashboard for Grafana with real programs: promtool and
// Prometheus of Debian, and a decamp server.
package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab/socket"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

var update = flag.Bool("update", false, "write the table of metrics to docs/monitoring.md")

// Tested files, and the programs that test them.
const (
	rulesFile     = "../../packaging/prometheus/decamp.rules.yml"
	dashboardFile = "../../packaging/grafana/decamp.json"
	docsFile      = "../../docs/monitoring.md"
	promtool      = "../../build/prometheus/usr/bin/promtool"
	prometheus    = "../../build/prometheus/usr/bin/prometheus"
)

// waitLimit is the maximum time that a test waits for another process.
const waitLimit = 2 * time.Minute

// startFleet starts a server of a fleet in which each metric has a value.
func startFleet(t *testing.T) *servertest.Fleet {
	t.Helper()
	f := servertest.Start(t, nil)
	ctx := t.Context()
	must(t, f.Plan(ctx, "wave1", 3))
	claims, err := f.Run(ctx, "wave1", 1, 2)
	must(t, err)
	must(t, f.Report(ctx, claims, 10))
	must(t, f.SetSchedulerState(ctx, server.SchedulerState{Resources: []server.Resource{{Name: "host:esx1/vms", Capacity: 20, Used: 2, Waiting: 1}}}))
	must(t, f.Database.Limits.Set(ctx, "host:esx1/rate", 5e6))
	must(t, f.Database.Limits.Set(ctx, "host:esx1/vms", 5))
	must(t, f.Database.Claims.Finish(ctx, claims[1], fleetdb.End{State: fleetdb.Done, Summary: fleetdb.Summary{Outage: time.Minute, Rates: []float64{2e8}}}))
	lease, err := f.Database.Leases.Acquire(ctx, "notifier", "test", time.Hour)
	must(t, err)
	_, err = f.Database.Notifications.Add(ctx, lease, 1, []fleetdb.Notification{{Receiver: "ops", ID: "evt_1"}})
	must(t, err)
	readMetrics(t, f) // the metrics of requests have values after a first request
	return f
}

// readMetrics returns the text of /metrics.
func readMetrics(t *testing.T, f *servertest.Fleet) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL+"/metrics", nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+f.Tokens[server.View])
	client := f.Client()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, text)
	}
	return string(text)
}

// familiesOf returns the families of a text, by name.
func familiesOf(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	must(t, err)
	return families
}

// runPromtool runs promtool and returns its output.
func runPromtool(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), promtool, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// promtool accepts the names, types and help texts of the server's metrics.
func TestMetricsPassPromtool(t *testing.T) {
	text := readMetrics(t, startFleet(t))
	if out := runPromtool(t, text, "check", "metrics"); out != "" {
		t.Errorf("promtool check metrics:\n%s", out)
	}
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(text, "decamp_transfer_bytes_total", "decamp_transfer_bytes"))
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("decamp_transfer_bytes")) {
		t.Errorf("promtool accepts a counter without _total: %s", out)
	}
}

// docs/monitoring.md lists each metric of the server with its labels and its help text.
func TestEachMetricIsDocumented(t *testing.T) {
	families := familiesOf(t, readMetrics(t, startFleet(t)))
	var rows []string
	for name, f := range families {
		if !strings.HasPrefix(name, "decamp_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp()))
	}
	slices.Sort(rows)
	table := "| metric | type | labels | meaning |\n|---|---|---|---|\n" + strings.Join(rows, "")
	docs, err := os.ReadFile(docsFile)
	must(t, err)
	const begin, end = "<!-- metrics -->\n", "<!-- end of metrics -->"
	before, rest, ok := strings.Cut(string(docs), begin)
	documented, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no %q and %q", docsFile, begin, end)
	}
	if *update {
		must(t, os.WriteFile(docsFile, []byte(before+begin+table+end+after), 0o644))
	} else if documented != table {
		t.Errorf("%s differs from the server; run go test ./test/monitoring -update", docsFile)
	}
}

// A rule is an alert in the rules file.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// readRules returns all alerts of the rules file.
func readRules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	text, err := os.ReadFile(rulesFile)
	must(t, err)
	must(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// Each alert has a test in testdata/alerts.yml in which it fires, and one in which it does not. It has a severity, a
// summary and a description.
func TestAlertsFire(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	dir := t.TempDir()
	for _, from := range []string{rulesFile, "testdata/alerts.yml"} {
		text, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, filepath.Base(from)), text, 0o600))
	}
	runPromtool(t, "", "check", "rules", filepath.Join(dir, "decamp.rules.yml"))
	runPromtool(t, "", "test", "rules", filepath.Join(dir, "alerts.yml"))

	var tests struct {
		Tests []struct {
			Alerts []struct {
				Name string `yaml:"alertname"`
				Exp  []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	text, err := os.ReadFile("testdata/alerts.yml")
	must(t, err)
	must(t, yaml.Unmarshal(text, &tests))
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, each := range tests.Tests {
		for _, a := range each.Alerts {
			fires[a.Name] = fires[a.Name] || len(a.Exp) > 0
			quiet[a.Name] = quiet[a.Name] || len(a.Exp) == 0
		}
	}
	for _, r := range readRules(t) {
		if !fires[r.Alert] || !quiet[r.Alert] {
			t.Errorf("%s has a test in which it fires: %v, and one in which it does not: %v; want both", r.Alert, fires[r.Alert], quiet[r.Alert])
		}
		if !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s has labels %v and annotations %v", r.Alert, r.Labels, r.Annotations)
		}
	}
}

// readDashboard returns the dashboard. It checks the file with Grafana's types.
//
//lint:ignore SA1019 every Grafana imports this format; version 2 requires Grafana 12
func readDashboard(t *testing.T) (d dashboard.Dashboard) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	must(t, err)
	if found := schemaErrors(text); found != "" {
		t.Error(found)
	}
	if schemaErrors(bytes.Replace(text, []byte(`"gridPos"`), []byte(`"grid"`), 1)) == "" {
		t.Error("want an error for a panel with an unknown field")
	}
	must(t, json.Unmarshal(text, &d))
	must(t, d.Validate())
	return d
}

// schemaErrors returns the errors of a dashboard according to Grafana's types. For a valid dashboard, the library returns
// an error without a text.
func schemaErrors(text []byte) string {
	//lint:ignore SA1019 as in readDashboard
	if err := new(dashboard.Dashboard).UnmarshalJSONStrict(text); err != nil {
		return err.Error()
	}
	return ""
}

// dashboardExprs returns the expressions of all panels, with values for the variables of Grafana.
func dashboardExprs(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	must(t, err)
	var d struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal(text, &d))
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, strings.NewReplacer("$__rate_interval", "5m", "$plan", ".+").Replace(target.Expr))
		}
	}
	return all
}

// The panels of the dashboard have unique IDs, do not overlap, and use the data source that the user selects.
func TestDashboardIsValid(t *testing.T) {
	d := readDashboard(t)
	ids, cells := map[uint32]bool{}, map[[2]uint32]string{}
	for _, entry := range d.Panels {
		if entry.RowPanel != nil {
			if ids[entry.RowPanel.Id] {
				t.Errorf("two panels have the id %d", entry.RowPanel.Id)
			}
			ids[entry.RowPanel.Id] = true
			continue
		}
		p := entry.Panel
		if p.Id == nil || ids[*p.Id] || p.Title == nil || *p.Title == "" || p.Description == nil || *p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %+v has no unique id, title, description or target", p)
			continue
		}
		ids[*p.Id] = true
		if p.Datasource == nil || p.Datasource.Uid == nil || *p.Datasource.Uid != "${datasource}" {
			t.Errorf("panel %s does not use the variable of the data source", *p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]uint32{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panels %s and %q overlap, or exceed 24 columns", *p.Title, other)
				}
				cells[[2]uint32{x, y}] = *p.Title
			}
		}
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	if !slices.Equal(variables, []string{"datasource", "plan"}) {
		t.Errorf("variables %v", variables)
	}
}

// metricName matches the name of a metric of decamp, the process or the Go runtime in an expression.
var metricName = regexp.MustCompile(`\b(decamp|process|go)_[a-z_]+`)

// Each metric that an alert or a panel uses exists on the server. Names of histograms have a suffix.
func TestRulesAndDashboardUseExistingMetrics(t *testing.T) {
	known := map[string]bool{}
	for name, f := range familiesOf(t, readMetrics(t, startFleet(t))) {
		if f.GetType() != dto.MetricType_HISTOGRAM {
			known[name] = true
			continue
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			known[name+suffix] = true
		}
	}
	exprs := dashboardExprs(t)
	for _, r := range readRules(t) {
		exprs = append(exprs, r.Expr)
	}
	used := 0
	for _, expr := range exprs {
		for _, name := range metricName.FindAllString(expr, -1) {
			if used++; !known[name] {
				t.Errorf("%s uses %s, which the server does not have", expr, name)
			}
		}
	}
	if used < len(exprs) {
		t.Errorf("found only %d metrics in %d expressions", used, len(exprs))
	}
}

// Prometheus scrapes a server with the configuration of docs/monitoring.md, loads the rules, and evaluates each alert and
// each panel.
func TestPrometheusScrapesAServer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	f := startFleet(t)
	p := startPrometheus(t, f)
	waitUntil(t, "the server is scraped", func() bool {
		return p.query(t, `up{job="decamp"}`) == "1" && p.query(t, `decamp_plan_vms{state="running"}`) == "1"
	})
	for _, expr := range dashboardExprs(t) {
		p.query(t, expr)
	}
	waitUntil(t, "each rule is evaluated without an error", func() bool {
		var rules struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Health, LastError string }
				}
			}
		}
		p.get(t, "/api/v1/rules", &rules)
		healthy := 0
		for _, g := range rules.Data.Groups {
			for _, r := range g.Rules {
				if r.LastError != "" {
					t.Fatalf("%s: %s", r.Name, r.LastError)
				}
				if r.Health == "ok" {
					healthy++
				}
			}
		}
		return healthy == len(readRules(t))
	})
}

// A promServer is a running Prometheus.
type promServer struct{ url string }

// startPrometheus starts Prometheus with the configuration of docs/monitoring.md for the server of f.
func startPrometheus(t *testing.T, f *servertest.Fleet) promServer {
	t.Helper()
	dir := t.TempDir()
	docs, err := os.ReadFile(docsFile)
	must(t, err)
	_, config, ok := strings.Cut(string(docs), "```yaml\nrule_files:")
	config, _, closed := strings.Cut("rule_files:"+config, "```")
	if !ok || !closed {
		t.Fatal("docs/monitoring.md has no configuration of Prometheus")
	}
	rules, err := filepath.Abs(rulesFile)
	must(t, err)
	for old, now := range map[string]string{
		"/etc/prometheus/decamp.rules.yml": rules, "/etc/prometheus/decamp.token": filepath.Join(dir, "token"),
		"/etc/prometheus/decamp.pem": filepath.Join(dir, "tls.pem"), "decamp.example.com:8470": f.Addr,
	} {
		if !strings.Contains(config, old) {
			t.Fatalf("the configuration does not contain %s", old)
		}
		config = strings.ReplaceAll(config, old, now)
	}
	certificate, err := os.ReadFile(filepath.Join(f.State, "tls.pem"))
	must(t, err)
	for name, text := range map[string]string{
		"token": f.Tokens[server.View] + "\n", "tls.pem": string(certificate),
		"prometheus.yml": "global: {scrape_interval: 1s, evaluation_interval: 1s}\n" + config,
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	port, err := socket.ReservePort("127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { must(t, port.Close()) })
	var log bytes.Buffer
	cmd := exec.Command(prometheus, "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", port.Addr())
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of Prometheus:\n%s", log.String())
		}
	})
	p := promServer{"http://" + port.Addr()}
	waitUntil(t, "Prometheus is ready", func() bool {
		resp, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// get reads a response of the API.
func (p promServer) get(t *testing.T, path string, into any) {
	t.Helper()
	resp, err := http.Get(p.url + path)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", path, text)
	}
	must(t, json.Unmarshal(text, into))
}

// query returns the value of the first series of an expression; "" if it has none.
func (p promServer) query(t *testing.T, expr string) string {
	t.Helper()
	var result struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	p.get(t, "/api/v1/query?query="+url.QueryEscape(expr), &result)
	if len(result.Data.Result) == 0 {
		return ""
	}
	return fmt.Sprint(result.Data.Result[0].Value[1])
}

// waitUntil waits until happened returns true.
func waitUntil(t *testing.T, what string, happened func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); !happened(); {
		select {
		case <-ctx.Done():
			t.Fatalf("timeout: %s", what)
		case <-tick.C:
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
