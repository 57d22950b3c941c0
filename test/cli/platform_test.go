package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab/pve"
)

// startProxmox starts an emulated node with these networks, or with the default ones. It returns the node and its value
// for --to.
func (r *rig) startProxmox(networks ...pve.Network) (node *pve.Server, to string) {
	r.t.Helper()
	folder := filepath.Join(r.dir, "pve")
	must(r.t, os.Mkdir(folder, 0o755))
	node, err := pve.Start(pve.Config{Dir: folder, Networks: networks})
	must(r.t, err)
	r.t.Cleanup(node.Close)
	token := r.writeFile("token", node.Token()+"\n")
	return node, "proxmox:" + node.URL() + "/" + node.Node() + "?token=" + token + "&fingerprint=" + node.Fingerprint()
}

// decamp migrate delivers a VM to Proxmox, and with --start it starts the delivered VM. decamp rollback removes the VM
// when it is off.
func TestMigrateToProxmox(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	node, to := r.startProxmox()
	migrate := []string{"migrate", r.url(), "web01", "--to", to, "--format", "qcow2"}
	r.runOnSource(migrate...).wantExit(2).wantOutput("the staging folder of this machine is missing", "staging=/FOLDER")
	migrate = append(migrate, "--staging", r.vmsDir())
	r.runOnSource(migrate...).wantExit(0).wantOutput("delivered to", "as 100 (web01)", "It is off")
	if ids := node.VMIDs(); len(ids) != 1 || len(node.Uploads()) > 0 {
		t.Fatalf("guests %v, uploads left %v", ids, node.Uploads())
	}
	for i, option := range []string{"scsi0", "scsi1"} {
		held, err := node.Read(t.Context(), node.Guest(100)[option])
		must(t, err)
		r.compareImage(r.writeFile(option, string(held)), "web01", i)
	}
	folder := filepath.Join(r.vmsDir(), "web01")
	if left, err := filepath.Glob(filepath.Join(folder, "*.qcow2")); err != nil || len(left) > 0 {
		t.Errorf("the staging folder contains %v, %v", left, err)
	}
	r.run("verify", folder).wantExit(3).wantOutput("were delivered to", "as 100")
	r.runOnSource(migrate...).wantExit(0).wantOutput("was migrated before")
	r.runOnSource(append(migrate, "--start")...).wantExit(0).wantOutput("was migrated before", "qm terminal 100 on pve1")
	r.runOnSource("rollback", r.onlyRun(), "--withdraw").wantExit(6).wantOutput("qm stop 100")
	node.SwitchOff(100)

	r.runOnSource("rollback", r.onlyRun(), "--withdraw").wantExit(0)
	if ids := node.VMIDs(); len(ids) > 0 || len(node.Volumes()) > 0 {
		t.Errorf("guests %v, volumes %v", ids, node.Volumes())
	}
	if left, err := os.ReadDir(r.vmsDir()); err != nil || len(left) > 0 {
		t.Errorf("the staging folder contains %v, %v", left, err)
	}
	for _, path := range r.filesWith(strings.TrimPrefix(node.Token(), "root@pam!decamp=")) {
		if path != filepath.Join(r.dir, "token") {
			t.Errorf("%s contains the secret of the token", path)
		}
	}
}

// A plan with a Proxmox target, a network map and start: true delivers the VM and starts it.
func TestPlanToProxmox(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	node, to := r.startProxmox(pve.Network{Name: "vmbr1"}) // without vmbr0, the default for networks that are not in a map
	file := r.writeFile("plan.yaml", fmt.Sprintf("version: 1\nname: p\nsource: {url: %s, fingerprint: %q, credentials: {file: password}}\n"+
		"maps: {networks: {VM Network: \"vmbr1,20\"}}\ndefaults: {to: [%q], format: qcow2, start: true}\nvms: [{vm: web01}]\n",
		r.url(), r.lab.Fingerprint(), to+"&staging="+r.vmsDir()))
	r.run("plan", "check", file).wantExit(0)
	r.run("plan", "run", file).wantExit(0)
	if card := node.Guest(100)["net0"]; !strings.Contains(card, "bridge=vmbr1,") || !strings.Contains(card, "tag=20") {
		t.Errorf("net0 is %q, want bridge=vmbr1 and tag=20", card)
	}
	if _, err := os.Stat(node.Serial(100)); err != nil {
		t.Errorf("the VM was not started: %v", err)
	}
	r.run("limits").wantExit(0)
}

// Without a cluster, decamp writes the KubeVirt manifests beside the images.
func TestMigrateToManifests(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	r.runOnSource("migrate", r.url(), "web01", "--to", "kubevirt:"+r.vmsDir()+"?namespace=vms").wantExit(0).
		wantOutput("delivered to", "Notes for the first start", "the disks of pvscsi0 are on SATA")
	text, err := os.ReadFile(filepath.Join(r.vmsDir(), "web01.yaml"))
	must(t, err)
	for _, want := range []string{"kind: VirtualMachine", "kind: DataVolume", "namespace: vms", "image-upload dv web01-disk0 "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	r.compareImage(filepath.Join(r.vmsDir(), "web01", "web01-disk0.raw"), "web01", 0)
}
