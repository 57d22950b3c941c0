package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
)

// fullFeaturedLab returns a lab with a VM that uses the features that targets keep or drop.
func fullFeaturedLab() lab.Config {
	return lab.Config{Datastores: []lab.Datastore{{Name: "ssd1"}, {Name: "nfs1"}}, VMs: []lab.VM{{
		Name: "prod-web", Firmware: "efi", SecureBoot: true, TPM: true, UUID: "564d1234-0000-1111-2222-333344445555",
		InstanceUUID: "52aa0000-1111-2222-3333-444455556666", GuestID: "debian12_64Guest",
		CPUs: 4, CoresPer: 2, MemoryMB: 2048, Annotation: "bill to: <R&D>\nsecond line", CDROM: true, Datastore: "ssd1",
		Disks: []lab.Disk{
			{Capacity: 8 << 20, Fill: 20, Seed: 1}, {Capacity: 16 << 20, Fill: 5, Seed: 2, Datastore: "nfs1", Controller: "ahci"},
		},
		NICs: []lab.NIC{{Network: "VM Network"}, {Network: "backup", Disconnected: true}},
	}}}
}

// A dry run prints the VM that a migration would define. It creates nothing on this machine or at the target.
func TestDryRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ to, network, storages string }{
		"dir":      {"dir:VMS", "{to: bridge:br0, vlan: 20}", "{}"},
		"proxmox":  {"", "{to: vmbr1, vlan: 20, model: virtio}", `{"nfs*": local}`},
		"kubevirt": {"kubevirt:VMS?namespace=vms&network=multus:lan", "multus:vms/web", `{"nfs*": slow}`},
		"libvirt":  {"libvirt:qemu:///system?socket=/no/such/socket", "{to: bridge:br0}", `{"nfs*": slow}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, fullFeaturedLab()).withFingerprint()
			to, code := strings.ReplaceAll(c.to, "VMS", r.vmsDir()), 0
			things := func() int { return 0 }
			switch name {
			case "proxmox":
				node, at := r.startProxmox()
				to, things = at, func() int { return len(node.VMIDs()) + len(node.Volumes()) + len(node.Uploads()) }
			case "libvirt":
				code = 5 // the target is unreachable, but the VM is printed
			}
			file := r.writeFile("map.yaml", "networks:\n  VM Network: "+c.network+"\nstorages: "+c.storages+"\nnames: {\"prod-*\": \"*\"}\n")
			dry := []string{"migrate", r.url(), "prod-web", "--to", to, "--staging", r.vmsDir(), "--map", file, "--dry-run"}
			out := r.runOnSource(dry...).wantExit(code)
			r.compareGolden("dryrun-"+name+".txt", r.maskVariableParts(out.stdout, to))
			var printed struct {
				VM           string
				Destinations []struct{ Outline struct{ Name string } }
			}
			must(t, json.Unmarshal([]byte(strings.SplitAfter(r.runOnSource(append(dry, "--json")...).stdout, "\n")[0]), &printed))
			if printed.VM != "prod-web" || len(printed.Destinations) != 1 || printed.Destinations[0].Outline.Name != "web" {
				t.Errorf("as JSON: %+v", printed)
			}
			left, err := os.ReadDir(r.vmsDir())
			must(t, err)
			runs, err := os.ReadDir(filepath.Join(r.stateDir(), "runs"))
			if len(left) > 0 || things() > 0 || len(runs) > 0 || err != nil && !os.IsNotExist(err) {
				t.Errorf("created %v, %d objects at the target, runs %v, %v; want nothing", left, things(), runs, err)
			}
		})
	}
}

// A dry run prints an obstacle with the definition, and ends with the same error as the migration.
func TestDryRunReportsObstacles(t *testing.T) {
	t.Parallel()
	cfg := fullFeaturedLab()
	cfg.VMs[0].PoweredOn = true
	r := newRig(t, cfg).withFingerprint()
	dry := []string{"migrate", r.url(), "prod-web", "--to", "dir:" + r.vmsDir(), "--dry-run"}
	r.runOnSource(dry...).wantExit(6).wantOutput("name      prod-web", "is powered on", "its disks were not examined")
	r.runOnSource(append(dry, "--power-off")...).wantExit(0).wantOutput("nothing was created, copied or powered off")
	must(t, os.Mkdir(filepath.Join(r.vmsDir(), "prod-web"), 0o755))
	r.runOnSource(append(dry, "--power-off")...).wantExit(6).wantOutput("already exists")
	wrong := r.writeFile("map.yaml", "networks:\n  VM Network: br0\nstorage: {a: b}\n")
	r.runOnSource(append(dry, "--map", wrong)...).wantExit(2).wantOutput("map.yaml:3: ", "did you mean storages?")
	storages := r.writeFile("storages.yaml", "storages: {ssd1: fast}\n")
	r.runOnSource(append(dry, "--power-off", "--map", storages)...).wantExit(7).wantOutput("a folder has no storages")
	r.runOnSource(append(dry, "--discard")...).wantExit(2)
}

// maskVariableParts replaces the parts of text that differ between runs.
func (r *rig) maskVariableParts(text, to string) string {
	text = strings.NewReplacer(to, "TO", r.vmsDir(), "VMS", r.dir, "DIR").Replace(text)
	text = regexp.MustCompile(`staging=[^ \n]*`).ReplaceAllString(text, "staging=VMS")
	return regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(text, "HOST")
}
