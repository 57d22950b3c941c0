package report_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/bench/report"
)

var update = flag.Bool("update", false, "write the golden files")

// testSet returns a set with rows of every kind.
func testSet(t *testing.T) report.Set {
	t.Helper()
	text, err := os.Open(filepath.Join("testdata", "rows.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	rows, err := bench.ReadRows(text)
	if err != nil {
		t.Fatal(err)
	}
	return report.NewSet("own", rows)
}

// writeJSON writes a report as decamp benchmark report --json does.
func writeJSON(b *bytes.Buffer, r report.Report) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	return enc.Encode(r)
}

func TestFormats(t *testing.T) {
	r := report.New(testSet(t))
	for _, f := range []struct {
		file  string
		write func(*bytes.Buffer) error
	}{
		{"report.json", func(b *bytes.Buffer) error { return writeJSON(b, r) }},
		{"report.csv", func(b *bytes.Buffer) error { return report.WriteCSV(b, r) }},
		{"report.bench", func(b *bytes.Buffer) error { return report.WriteGo(b, r) }},
	} {
		var b bytes.Buffer
		if err := f.write(&b); err != nil {
			t.Fatal(err)
		}
		checkGolden(t, filepath.Join("testdata", f.file), b.Bytes())
	}
}

func checkGolden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(want, got) {
		t.Errorf("%s differs (%v); update it with -update and read the difference with git diff:\n%s", path, err, got)
	}
}

// Each effect contains the pairs of rows from which it is computed.
func TestEffectsHavePairs(t *testing.T) {
	r := report.New(report.Published())
	if len(r.Sets) != 1 || len(r.Sets[0].Rows) != 19 || len(r.Sets[0].Effects) != 5 || len(r.Sets[0].Curves) != 3 {
		t.Fatalf("the report is %+v", r)
	}
	if e := r.Sets[0].Effects[0]; e.Variable != bench.ByExport || len(e.Pairs) != 3 || e.Pairs[0].Before.Export != bench.Sync {
		t.Errorf("the first effect is %+v", e)
	}
}

// The page is a single file that contains all rows. Text of rows is escaped.
func TestPageIsSelfContained(t *testing.T) {
	set := testSet(t)
	set.Rows[0].Origin = `<b onclick="alert(1)">`
	var b bytes.Buffer
	if err := report.WriteHTML(&b, report.New(set, report.Published())); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, r := range append(set.Rows, bench.Seed().Matrix...) {
		if !strings.Contains(page, ">"+r.Name()+"<") {
			t.Errorf("the page does not show %s", r.Name())
		}
	}
	for _, text := range []string{"http:", "https:", "@import", "url(", "<link", "<img", "<b onclick", " src=", "ZgotmplZ"} {
		if strings.Contains(strings.ReplaceAll(page, "by https, ", ""), text) {
			t.Errorf("the page contains %s", text)
		}
	}
	for _, text := range []string{"2.90×", "esxi_hdd_nfs_hdd_25g_mtu1500_sync was reported with 6.50 MiB/s", "the host keeps no counters", "MTV cold, one host: 284.0 MiB/s at 20 VMs; more is no gain", "2^20 bytes"} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not contain %s", text)
		}
	}
}

// If a setup was measured twice, the last row is used.
func TestLastMeasurementOfASetupIsUsed(t *testing.T) {
	rows := testSet(t).Rows
	again := rows[0]
	again.Wire, again.Seconds = again.Wire*2, again.Seconds/2
	set := report.NewSet("twice", append(rows, again))
	if len(set.Rows) != len(rows) || set.Rows[len(rows)-1].Wire != again.Wire {
		t.Errorf("%d rows, want %d with the last measurement", len(set.Rows), len(rows))
	}
}
