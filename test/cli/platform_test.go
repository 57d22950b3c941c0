package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab/pve"
)

// proxmox starts a node with these networks, or the usual ones, and returns it with the --to that
// names it.
func (r *rig) proxmox(networks ...pve.Network) (node *pve.Server, to string) {
	r.t.Helper()
	folder := filepath.Join(r.dir, "pve")
	must(r.t, os.Mkdir(folder, 0o755))
	node, err := pve.Start(pve.Config{Dir: folder, Networks: networks})
	must(r.t, err)
	r.t.Cleanup(node.Close)
	token := r.write("token", node.Token()+"\n")
	return node, "proxmox:" + node.URL() + "/" + node.Node() + "?token=" + token + "&fingerprint=" + node.Fingerprint()
}

// A VM goes into Proxmox by one command, is started by it later, and is taken back by another once it is off.
func TestMigrateToProxmox(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	node, to := r.proxmox()
	migrate := []string{"migrate", r.url(), "web01", "--to", to, "--format", "qcow2"}
	r.source(migrate...).ends(2).says("the staging folder of this machine is missing", "staging=/FOLDER")
	migrate = append(migrate, "--staging", r.vms())
	r.source(migrate...).ends(0).says("delivered to", "as 100 (web01)", "It is off")
	if ids := node.VMIDs(); len(ids) != 1 || len(node.Uploads()) > 0 {
		t.Fatalf("guests %v, uploads left %v", ids, node.Uploads())
	}
	for i, option := range []string{"scsi0", "scsi1"} {
		held, err := node.Read(t.Context(), node.Guest(100)[option])
		must(t, err)
		r.sameAsSource(r.write(option, string(held)), "web01", i)
	}
	folder := filepath.Join(r.vms(), "web01")
	if left, err := filepath.Glob(filepath.Join(folder, "*.qcow2")); err != nil || len(left) > 0 {
		t.Errorf("on the stage: %v, %v", left, err)
	}
	r.run("verify", folder).ends(3).says("were delivered to", "as 100")
	r.source(migrate...).ends(0).says("was migrated before")
	r.source(append(migrate, "--start")...).ends(0).says("was migrated before", "qm terminal 100 on pve1")
	r.source("rollback", r.onlyRun(), "--withdraw").ends(6).says("qm stop 100")
	node.SwitchOff(100)

	r.source("rollback", r.onlyRun(), "--withdraw").ends(0)
	if ids := node.VMIDs(); len(ids) > 0 || len(node.Volumes()) > 0 {
		t.Errorf("guests %v, volumes %v", ids, node.Volumes())
	}
	if left, err := os.ReadDir(r.vms()); err != nil || len(left) > 0 {
		t.Errorf("on the stage: %v, %v", left, err)
	}
	for _, path := range r.filesWith(strings.TrimPrefix(node.Token(), "root@pam!decamp=")) {
		if path != filepath.Join(r.dir, "token") {
			t.Errorf("%s has the token's secret", path)
		}
	}
}

// A plan names Proxmox as it names a folder; its stage is what a worker has to offer. It has the VM started.
func TestPlanToProxmox(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	node, to := r.proxmox(pve.Network{Name: "vmbr1"}) // and not vmbr0, which cards join that no map names
	file := r.write("plan.yaml", fmt.Sprintf("version: 1\nname: p\nsource: {url: %s, fingerprint: %q, credentials: {file: password}}\n"+
		"maps: {networks: {VM Network: \"vmbr1,20\"}}\ndefaults: {to: [%q], format: qcow2, start: true}\nvms: [{vm: web01}]\n",
		r.url(), r.lab.Fingerprint(), to+"&staging="+r.vms()))
	r.run("plan", "check", file).ends(0)
	r.run("plan", "run", file).ends(0)
	if card := node.Guest(100)["net0"]; !strings.Contains(card, "bridge=vmbr1,") || !strings.Contains(card, "tag=20") {
		t.Errorf("its card is %q", card)
	}
	if _, err := os.Stat(node.Serial(100)); err != nil {
		t.Errorf("it was not started: %v", err)
	}
	r.run("limits").ends(0)
}

// Without a cluster, KubeVirt's manifests are written beside the images.
func TestMigrateToManifests(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	r.source("migrate", r.url(), "web01", "--to", "kubevirt:"+r.vms()+"?namespace=vms").ends(0).
		says("delivered to", "Notes for the first start", "the disks of pvscsi0 are on SATA")
	text, err := os.ReadFile(filepath.Join(r.vms(), "web01.yaml"))
	must(t, err)
	for _, want := range []string{"kind: VirtualMachine", "kind: DataVolume", "namespace: vms", "image-upload dv web01-disk0 "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	r.sameAsSource(filepath.Join(r.vms(), "web01", "web01-disk0.raw"), "web01", 0)
}
