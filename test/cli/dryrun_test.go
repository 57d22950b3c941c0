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

// everything is a VM that has all that a target may keep, or not.
func everything() lab.Config {
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

// A dry run prints the VM that would be defined, and creates nothing here, at the target or at the source.
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
			r := newRig(t, everything()).trusting()
			to, code := strings.ReplaceAll(c.to, "VMS", r.vms()), 0
			things := func() int { return 0 }
			switch name {
			case "proxmox":
				node, at := r.proxmox()
				to, things = at, func() int { return len(node.VMIDs()) + len(node.Volumes()) + len(node.Uploads()) }
			case "libvirt":
				code = 5 // nobody is there; what it would be is told all the same
			}
			file := r.write("map.yaml", "networks:\n  VM Network: "+c.network+"\nstorages: "+c.storages+"\nnames: {\"prod-*\": \"*\"}\n")
			dry := []string{"migrate", r.url(), "prod-web", "--to", to, "--staging", r.vms(), "--map", file, "--dry-run"}
			out := r.source(dry...).ends(code)
			r.transcript("dryrun-"+name+".txt", r.plain(out.stdout, to))
			var told struct {
				VM           string
				Destinations []struct{ Outline struct{ Name string } }
			}
			must(t, json.Unmarshal([]byte(strings.SplitAfter(r.source(append(dry, "--json")...).stdout, "\n")[0]), &told))
			if told.VM != "prod-web" || len(told.Destinations) != 1 || told.Destinations[0].Outline.Name != "web" {
				t.Errorf("as JSON: %+v", told)
			}
			left, err := os.ReadDir(r.vms())
			must(t, err)
			runs, err := os.ReadDir(filepath.Join(r.state(), "runs"))
			if len(left) > 0 || things() > 0 || len(runs) > 0 || err != nil && !os.IsNotExist(err) {
				t.Errorf("made: %v, %d things, runs %v, %v", left, things(), runs, err)
			}
		})
	}
}

// An obstacle is printed with the definition, and ends the dry run with the same error as the migration.
func TestDryRunOfWhatCannotBe(t *testing.T) {
	t.Parallel()
	cfg := everything()
	cfg.VMs[0].PoweredOn = true
	r := newRig(t, cfg).trusting()
	dry := []string{"migrate", r.url(), "prod-web", "--to", "dir:" + r.vms(), "--dry-run"}
	r.source(dry...).ends(6).says("name      prod-web", "is powered on", "its disks were not examined")
	r.source(append(dry, "--power-off")...).ends(0).says("nothing was created, copied or powered off")
	must(t, os.Mkdir(filepath.Join(r.vms(), "prod-web"), 0o755))
	r.source(append(dry, "--power-off")...).ends(6).says("already exists")
	wrong := r.write("map.yaml", "networks:\n  VM Network: br0\nstorage: {a: b}\n")
	r.source(append(dry, "--map", wrong)...).ends(2).says("map.yaml:3: ", "did you mean storages?")
	storages := r.write("storages.yaml", "storages: {ssd1: fast}\n")
	r.source(append(dry, "--power-off", "--map", storages)...).ends(7).says("a folder has no storages")
	r.source(append(dry, "--discard")...).ends(2)
}

// plain is a text without what is another one each time.
func (r *rig) plain(text, to string) string {
	text = strings.NewReplacer(to, "TO", r.vms(), "VMS", r.dir, "DIR").Replace(text)
	text = regexp.MustCompile(`staging=[^ \n]*`).ReplaceAllString(text, "staging=VMS")
	return regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(text, "HOST")
}
