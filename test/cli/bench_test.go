package cli

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	measured "github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/esx"
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
parallel: [2]
copies: [2]
computed: {size: 32M, fill: 50%%}
landing: {listen: "127.0.0.1:0", portmap: %q}
`

// A killed decamp bench matrix continues with the first row that is not measured. It leaves no images, and no mounts
// on the host.
func TestBenchMatrixResumesAfterKill(t *testing.T) {
	t.Parallel()
	d := lab.Disk{Capacity: 32 << 20, Fill: 50, Seed: 1}
	portmap := loopback.Reserve(t)
	r := newRig(t, lab.Config{NFS: lab.NFS{Portmap: portmap}, VMs: []lab.VM{{Name: "web01", ChangeTracking: true, Disks: []lab.Disk{d}}, {Name: "web02", ChangeTracking: true, Disks: []lab.Disk{d}}}})
	must(t, os.Mkdir(filepath.Join(r.dir, "more"), 0o755))
	spec := r.writeFile("matrix.yaml", fmt.Sprintf(benchSpec, r.url(), r.lab.Fingerprint(), r.vmsDir(), filepath.Join(r.dir, "more"), portmap))
	rows := filepath.Join(r.dir, "rows.jsonl")
	cmd := r.command("bench", "matrix", "--spec", spec, "--rows", rows, "--json")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line := make([]byte, 1)
	for lines := 0; lines < 1; { // until one row is measured
		_, err := out.Read(line)
		must(t, err)
		if line[0] == '\n' {
			lines++
		}
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // the process was killed

	res := r.run("bench", "matrix", "--spec", spec, "--rows", rows)
	if res.code != 0 || strings.Count(res.stdout, "(measured before)") < 1 {
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
	for _, folder := range []string{r.vmsDir(), filepath.Join(r.dir, "more")} {
		left, err := os.ReadDir(folder)
		if err != nil || len(left) > 0 {
			t.Errorf("%s contains %v, %v, want nothing", folder, left, err)
		}
	}
	if left := r.lab.Mounts(); len(left) > 0 {
		t.Errorf("the host still has the datastores %v", left)
	}
	page := filepath.Join(r.dir, "report.html")
	if res := r.run("bench", "report", rows, "--html", page); res.code != 0 {
		t.Errorf("report: %s", res.stderr)
	}
	if res := r.run("advise", "--rows", rows); res.code != 0 {
		t.Errorf("advise: %s", res.stderr)
	}
}

// decamp bench matrix refuses a link whose MTU differs from that of the interface, and measures nothing.
func TestBenchMatrixRefusesAnotherMTU(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01"}, {Name: "web02"}}})
	text := strings.Replace(fmt.Sprintf(benchSpec, r.url(), r.lab.Fingerprint(), r.vmsDir(), filepath.Join(r.dir, "more"), "127.0.0.1:0"), "mtu: 65536", "mtu: 1500", 1)
	res := r.run("bench", "matrix", "--spec", r.writeFile("matrix.yaml", text), "--rows", filepath.Join(r.dir, "rows.jsonl"))
	if res.code != 6 || !strings.Contains(res.stderr, "MTU 1500 for the link, and interface lo") || !strings.Contains(res.stderr, "ip link set dev lo mtu 1500") {
		t.Errorf("exit code %d: %s", res.code, res.stderr)
	}
}

// decamp bench matrix measures a clone of the host onto an NFS server, here decamp land --durable. The row has the name
// of the published rows. The files of the clone are removed.
func TestBenchMatrixMeasuresExports(t *testing.T) {
	t.Parallel()
	portmap := loopback.Reserve(t)
	r := newRig(t, lab.Config{NFS: lab.NFS{Portmap: portmap}, VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: 16 << 20, Fill: 50, Seed: 1}}}}})
	export := filepath.Join(r.dir, "export")
	must(t, os.Mkdir(export, 0o755))
	server, _ := startLandWith(t, export, "--allow", "127.0.0.1", "--listen", "127.0.0.1:0", "--portmap", portmap, "--durable")
	host, err := esx.Dial(t.Context(), esx.Config{
		URL:         &url.URL{Scheme: "esxi", User: url.User("root"), Host: r.lab.Addr()},
		Fingerprint: r.lab.Fingerprint(),
		Password:    func(context.Context) (esx.Secret, error) { return secret, nil },
	})
	must(t, err)
	t.Cleanup(func() { must(t, host.Close()) })
	vm, err := host.VM(t.Context(), "web01")
	must(t, err)
	nas := esx.NAS{Server: server.Address, Path: export, Name: "nfs1"}
	_, _, err = host.MountNAS(t.Context(), vm.Host, nas)
	must(t, err)

	spec := r.writeFile("matrix.yaml", fmt.Sprintf(`version: 1
origin: lab
source: {url: %q, fingerprint: %q}
disks: [{medium: ssd, vms: [web01]}]
to: [{medium: nvme, folders: ["dir:%s"], nfs: [{folder: "dir:%s", datastore: nfs1, export: sync}]}]
links: [{nic: 10g, mtu: 65536}]
transports: [nfs]
ends: false
`, r.url(), r.lab.Fingerprint(), r.vmsDir(), export))
	rows := filepath.Join(r.dir, "rows.jsonl")
	res := r.run("bench", "matrix", "--spec", spec, "--rows", rows)
	if res.code != 0 || !strings.Contains(res.stdout, "esxi_ssd_nfs_nvme_10g_mtu65536_sync  ") {
		t.Fatalf("exit code %d: %s%s", res.code, res.stdout, res.stderr)
	}
	text, err := os.Open(rows)
	must(t, err)
	defer text.Close()
	all, err := measured.ReadRows(text)
	must(t, err)
	if len(all) != 1 || all[0].Allocated < 4<<20 || all[0].Allocated > 12<<20 {
		t.Errorf("%+v", all)
	}
	for _, name := range []string{".decamp-bench-*", "*.vmdk"} {
		if left, err := filepath.Glob(filepath.Join(export, name)); err != nil || len(left) > 0 {
			t.Errorf("left %q, %v", left, err)
		}
	}
	must(t, host.UnmountNAS(t.Context(), vm.Host, nas))
}

// With --esxtop, decamp bench matrix measures the reads of the host, also during a row that is shorter than the samples
// of the host. They match the bytes that decamp receives. --ssh-port overrides the port of the spec.
func TestBenchMatrixUsesEsxtop(t *testing.T) {
	t.Parallel()
	ssh := loopback.Reserve(t)
	_, port, err := net.SplitHostPort(ssh)
	must(t, err)
	cfg := lab.Config{VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: 26 << 20, Fill: 100, Seed: 1}}}}, Limits: lab.Limits{DatastoreRate: 2 << 20}} // 13 s
	cfg.SSH.Addr, cfg.SSH.Enabled = ssh, true
	r := newRig(t, cfg)
	spec := r.writeFile("matrix.yaml", fmt.Sprintf(`version: 1
origin: lab
source: {url: %q, fingerprint: %q, ssh: {port: 1}}
disks: [{medium: ssd, vms: [web01]}]
to: [{medium: nvme, folders: ["dir:%s"]}]
links: [{nic: 10g, mtu: 65536}]
ends: false
`, r.url(), r.lab.Fingerprint(), r.vmsDir()))
	rows := filepath.Join(r.dir, "rows.jsonl")
	if res := r.run("bench", "matrix", "--spec", spec, "--rows", rows, "--esxtop", "--ssh-port", port); res.code != 0 {
		t.Fatalf("exit code %d: %s%s", res.code, res.stdout, res.stderr)
	}
	text, err := os.Open(rows)
	must(t, err)
	defer text.Close()
	all, err := measured.ReadRows(text)
	must(t, err)
	if len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	row := all[0]
	if want := row.Wire; row.Read.MiBs < want*0.7 || row.Read.MiBs > want*1.3 || row.Read.IOPS == 0 {
		t.Errorf("%+v: the host read %.2f MiB/s, but decamp received %.2f", row, row.Read.MiBs, want)
	}
}
