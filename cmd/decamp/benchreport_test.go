package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

const ownRows = "../../internal/bench/report/testdata/rows.jsonl"

func TestBenchReportAsText(t *testing.T) {
	r := newTestProgram(t)
	r.mustExit(0, "bench", "report", ownRows)
	golden(t, "testdata/bench-report.txt", r.out.String())
}

func TestBenchReportFormats(t *testing.T) {
	page := filepath.Join(t.TempDir(), "report.html")
	for flag, text := range map[string]string{
		"--csv":     "published,esxi_ssd_nfs_nvme_25g_mtu9000,ssd,nfs,nvme,25g,9000,async",
		"--gobench": "set: rows\nBenchmarkCopy/source=ssd/by=https/dest=null/nic=10g/mtu=1500/streams=1 1 ",
		"--json":    `{"unit":"MiB/s (2^20 bytes) of allocated bytes","sets":[{"name":"rows",`,
	} {
		r := newTestProgram(t)
		r.mustExit(0, "bench", "report", ownRows, flag, "--html", page)
		mustContain(t, r.out.String(), text)
		if flag == "--json" && !json.Valid(r.out.Bytes()) {
			t.Error("the output is not valid JSON")
		}
	}
	r := newTestProgram(t)
	r.mustExit(0, "bench", "report", ownRows, "--html", page)
	if text, err := os.ReadFile(page); err != nil || r.out.Len() != 0 || !strings.Contains(string(text), "pattern_nvme_sync") {
		t.Errorf("got error %v, output %q; want only the HTML page", err, r.out)
	}
}

func TestBenchReportRefuses(t *testing.T) {
	dir := t.TempDir()
	empty, wrong := filepath.Join(dir, "empty"), filepath.Join(dir, "wrong")
	writeText(t, empty, "\n")
	writeText(t, wrong, `{"sauce": "hdd"}`)
	for _, c := range []struct {
		kind    fault.Kind
		args    []string
		message string
	}{
		{fault.NotFound, []string{filepath.Join(dir, "none")}, "no such file"},
		{fault.Invalid, []string{empty}, "has no rows"},
		{fault.Invalid, []string{wrong}, "line 1"},
		{fault.Invalid, []string{"--csv", "--gobench"}, "exclude each other"},
		{fault.Invalid, []string{"--html", filepath.Join(dir, "no", "page.html")}, "an existing folder"},
	} {
		r := newTestProgram(t)
		r.mustExit(fault.ExitCode(fault.New(c.kind, "")), append([]string{"bench", "report"}, c.args...)...)
		mustContain(t, r.stderr(), c.message)
	}
}
