package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/bench/advise"
	"github.com/decamp/decamp/internal/fault"
)

// runAdvise returns the output of decamp advise with the arguments.
func runAdvise(t *testing.T, args ...string) string {
	t.Helper()
	r := newTestProgram(t)
	r.mustExit(0, append([]string{"advise"}, args...)...)
	return r.out.String()
}

func TestAdviceAsText(t *testing.T) {
	golden(t, "testdata/advise.txt", runAdvise(t, "--source", "hdd", "--dest", "nvme", "--nic", "1g", "--nfs", "sync", "--allocated", "2T"))
}

// decamp advise uses the prices and the rows of the user.
func TestAdviceWithPricesAndOwnRows(t *testing.T) {
	prices, rows := filepath.Join(t.TempDir(), "prices.json"), filepath.Join(t.TempDir(), "rows.json")
	writeText(t, prices, `{"nic=10g": 420}`)
	writeText(t, rows, `[{"source": "array", "destination": "hdd", "nic": "1g", "mtu": 1500, "export": "async", "seconds": 100, "allocated": 10737418240, "origin": "us"}]`)
	text := runAdvise(t, "--source", "array", "--dest", "hdd", "--what-if", "nic=10g", "--prices", prices, "--rows", rows, "--verbose")
	mustContain(t, text, "measured: 102.4, us", "nic=10g", "420", "source array", "esxi_array_nfs_hdd_1g_mtu1500")

	var report advise.Report
	text = runAdvise(t, "--source", "450MiB/s", "--json")
	if err := json.Unmarshal([]byte(text), &report); err != nil || len(report.Rows) != 19 || report.MiBs < 80 || len(report.Steps) == 0 {
		t.Errorf("got report %+v, %v", report, err)
	}
}

func TestAdviseRefusesUnknownValues(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file.json")
	for _, c := range []struct {
		file    string
		args    []string
		message string
	}{
		{"", []string{"--source", "tape"}, "nothing is known of the source"},
		{"", []string{"--nfs", "maybe"}, "want async or sync"},
		{"", []string{"--nic", "fast"}, "want its speed"},
		{"", []string{"--what-if", "colour=red"}, "want VARIABLE=VALUE"},
		{"", []string{"--what-if", "source=tape"}, "nothing is known of the source"},
		{`{"nic": 3}`, []string{"--prices", file}, "want a change with its price"},
		{`[{"colour": 1}]`, []string{"--rows", file}, "unknown field"},
		{`[{"source": "hdd"}]`, []string{"--rows", file}, "row 1"},
	} {
		writeText(t, file, c.file)
		r := newTestProgram(t)
		r.mustExit(fault.ExitCode(fault.New(fault.Invalid, "")), append([]string{"advise"}, c.args...)...)
		mustContain(t, r.stderr(), c.message)
	}
	newTestProgram(t).mustExit(fault.ExitCode(fault.New(fault.NotFound, "")), "advise", "--rows", filepath.Join(t.TempDir(), "none"))
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
