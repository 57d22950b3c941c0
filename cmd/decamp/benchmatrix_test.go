package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

const matrixSpec = `version: 1
origin: us
source: {url: "esxi://root@192.0.2.1"}
disks: [{medium: ssd, vms: [web01]}]
to: [{medium: nvme, folders: ["dir:/srv/vm"]}]
links: [{nic: 10g, mtu: 1500, prepare: ["false"]}]
transports: [https, landing]
streams: [1, 16]
`

func TestBenchMatrixList(t *testing.T) {
	spec := filepath.Join(t.TempDir(), "matrix.yaml")
	writeText(t, spec, matrixSpec)
	r := newTestProgram(t)
	r.mustExit(0, "bench", "matrix", "--spec", spec, "--list")
	want := `esxi_ssd_https_null_10g_mtu1500_x1
esxi_ssd_https_null_10g_mtu1500_x16
esxi_ssd_landing_null_10g_mtu1500
pattern_nvme
esxi_ssd_https_nvme_10g_mtu1500_x1
esxi_ssd_https_nvme_10g_mtu1500_x16
esxi_ssd_landing_nvme_10g_mtu1500
`
	if got := r.out.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	r = newTestProgram(t)
	r.mustExit(0, "bench", "matrix", "--spec", spec, "--list", "--json")
	mustContain(t, r.out.String(), `{"folders":["/srv/vm"],"name":"pattern_nvme","vms":null}`)
}

func TestBenchMatrixRefuses(t *testing.T) {
	dir := t.TempDir()
	spec, odd, rows := filepath.Join(dir, "matrix.yaml"), filepath.Join(dir, "odd.yaml"), filepath.Join(dir, "rows.jsonl")
	writeText(t, spec, matrixSpec)
	writeText(t, odd, strings.Replace(matrixSpec, "streams:", "strems:", 1))
	writeText(t, filepath.Join(dir, "odd.jsonl"), "a letter\n")
	for _, c := range []struct {
		kind     fault.Kind
		args     []string
		messages []string
	}{
		{fault.Invalid, nil, []string{"--spec is missing"}},
		{fault.NotFound, []string{"--spec", filepath.Join(dir, "none")}, []string{"no such file"}},
		{fault.Invalid, []string{"--spec", odd}, []string{"odd.yaml:8:", "did you mean streams?"}},
		{fault.Invalid, []string{"--spec", spec, "--rows", filepath.Join(dir, "odd.jsonl")}, []string{"line 1", "name another file with --rows"}},
		{fault.Conflict, []string{"--spec", spec, "--rows", rows}, []string{`prepare link 10g, MTU 1500: ["false"]`, "run it manually"}},
	} {
		r := newTestProgram(t)
		r.mustExit(fault.ExitCode(fault.New(c.kind, "")), append([]string{"bench", "matrix"}, c.args...)...)
		mustContain(t, r.stderr(), c.messages...)
	}
}
