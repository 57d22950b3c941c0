package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	measured "github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
)

const benchSpec = `version: 1
origin: lab
source: {url: %q, fingerprint: %q}
disks: [{medium: ssd, vms: [web01, web02]}]
to: [{medium: nvme, folders: ["dir:%s", "dir:%s"]}]
links: [{nic: 10g, mtu: 65536, prepare: ["true"]}]
transports: [landing, https]
exports: [async, sync]
streams: [1, 4]
together: [2]
copies: [2]
computed: {size: 32M, fill: 50%%}
landing: {listen: "127.0.0.1:0", portmap: %q}
`

// A matrix that is killed goes on with the row it was at, and leaves neither an image nor anything
// on the host.
func TestBenchMatrixGoesOnAfterKill(t *testing.T) {
	d := lab.Disk{Capacity: 32 << 20, Fill: 50, Seed: 1}
	portmap := loopback.Reserve(t)
	r := newRig(t, lab.Config{NFS: lab.NFS{Portmap: portmap}, VMs: []lab.VM{{Name: "web01", ChangeTracking: true, Disks: []lab.Disk{d}}, {Name: "web02", ChangeTracking: true, Disks: []lab.Disk{d}}}})
	must(t, os.Mkdir(filepath.Join(r.dir, "more"), 0o755))
	spec := r.write("matrix.yaml", fmt.Sprintf(benchSpec, r.url(), r.lab.Fingerprint(), r.vms(), filepath.Join(r.dir, "more"), portmap))
	rows := filepath.Join(r.dir, "rows.jsonl")
	cmd := r.command("bench", "matrix", "--spec", spec, "--rows", rows, "--json")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line := make([]byte, 1)
	for lines := 0; lines < 1; { // a row is there
		_, err := out.Read(line)
		must(t, err)
		if line[0] == '\n' {
			lines++
		}
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed

	res := r.run("bench", "matrix", "--spec", spec, "--rows", rows)
	if res.code != 0 || strings.Count(res.stdout, "(was measured)") < 1 {
		t.Fatalf("exit code %d: %s%s", res.code, res.stdout, res.stderr)
	}
	text, err := os.Open(rows)
	must(t, err)
	defer text.Close()
	all, err := measured.ReadRows(text)
	must(t, err)
	names := map[string]bool{}
	for _, row := range all {
		if names[row.Name()] || row.Allocated == 0 || row.On.Host == "" && row.Source != measured.Pattern {
			t.Errorf("%+v", row)
		}
		names[row.Name()] = true
	}
	if len(names) != 16 {
		t.Errorf("%d rows: %v", len(names), names)
	}
	for _, folder := range []string{r.vms(), filepath.Join(r.dir, "more")} {
		left, err := os.ReadDir(folder)
		if err != nil || len(left) > 0 {
			t.Errorf("%s holds %v, %v", folder, left, err)
		}
	}
	if left := r.lab.Mounts(); len(left) > 0 {
		t.Errorf("the host still has %v", left)
	}
	page := filepath.Join(r.dir, "report.html")
	if res := r.run("bench", "report", rows, "--html", page); res.code != 0 {
		t.Errorf("report: %s", res.stderr)
	}
	if res := r.run("advise", "--rows", rows); res.code != 0 {
		t.Errorf("advise: %s", res.stderr)
	}
}

// A link whose MTU is another than the interface's is refused before anything is measured.
func TestBenchMatrixRefusesAnotherMTU(t *testing.T) {
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01"}, {Name: "web02"}}})
	text := strings.Replace(fmt.Sprintf(benchSpec, r.url(), r.lab.Fingerprint(), r.vms(), filepath.Join(r.dir, "more"), "127.0.0.1:0"), "mtu: 65536", "mtu: 1500", 1)
	res := r.run("bench", "matrix", "--spec", r.write("matrix.yaml", text), "--rows", filepath.Join(r.dir, "rows.jsonl"))
	if res.code != 6 || !strings.Contains(res.stderr, "MTU 1500, and lo") || !strings.Contains(res.stderr, "ip link set dev lo mtu 1500") {
		t.Errorf("exit code %d: %s", res.code, res.stderr)
	}
}
