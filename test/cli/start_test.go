package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/pve"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/test/guest"
)

// What starts nothing is refused before anything is copied, and so is one VM in two places.
func TestStartIsRefusedBeforeTheCopy(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 64, Disks: []lab.Disk{{Capacity: 1 << 20}}}}}).trusting()
	r.migrate("web01", "--start").ends(7).says("does not support --start", "omit --start")
	r.migrate("web01", "--start", "--dry-run").ends(7).says("does not support --start")
	r.migrate("web01", "--start", "--to", "dir:"+r.dir).ends(2).says("several copies would run")
	if n := r.lab.Stats().BodyBytes; n > 0 {
		t.Errorf("%d bytes of disks were sent", n)
	}
}

// A VM is started where it was delivered to, and its guest comes up there.
func TestMigrateAndStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, NICs: []lab.NIC{{Model: "vmxnet3"}},
		Disks: []lab.Disk{{File: guest.BootSector(t, 0), Controller: "pvscsi"}}}}}).trusting()
	node, to := r.proxmox()
	migrate := []string{"migrate", r.url(), "web01", "--to", to, "--staging", r.vms(), "--json"}
	var out struct {
		Facts struct{ Started *targets.Started }
	}
	lines := strings.Split(strings.TrimSpace(r.source(append(migrate, "--start")...).ends(0).stdout), "\n")
	must(t, json.Unmarshal([]byte(lines[len(lines)-1]), &out))
	if s := out.Facts.Started; s == nil || !strings.Contains(s.Console, "vmid=100") {
		t.Errorf("started: %+v", s)
	}
	for serial := ""; !strings.Contains(serial, up); {
		text, err := os.ReadFile(node.Serial(100))
		must(t, err)
		serial = string(text)
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatalf("the guest does not come up: %s", serial)
		}
	}
	text := migrate[:len(migrate)-1]
	if again := r.source(text...).ends(0).says("was migrated before", "nothing to do"); strings.Contains(again.stdout, "It is off") {
		t.Error(again.stdout)
	}
}

// decamp verify of a delivered VM reports that decamp started it, and that a disk differs that was exported from the
// target later under the name of the image.
func TestVerifyAfterStartAtTheTarget(t *testing.T) {
	t.Parallel()
	disk := guest.BootSector(t, 0)
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, NICs: []lab.NIC{{Model: "vmxnet3"}},
		Disks: []lab.Disk{{File: disk, Controller: "pvscsi"}}}}}).trusting()
	_, to := r.proxmox()
	migrate := []string{"migrate", r.url(), "web01", "--to", to, "--staging", r.vms()}
	r.source(migrate...).ends(0)
	folder := filepath.Join(r.vms(), "web01")
	if off := r.run("verify", folder).ends(3).says("before the first start"); strings.Contains(off.stderr, "started the VM") {
		t.Error(off.stderr)
	}
	r.source(append(migrate, "--start")...).ends(0)
	r.run("verify", folder).ends(3).says("decamp started the VM there on", "as expected after a start")
	image := filepath.Join(folder, "web01-disk0.raw")
	exported, err := os.ReadFile(disk)
	must(t, err)
	must(t, os.WriteFile(image, exported, 0o600))
	r.run("verify", folder).ends(0)
	write(t, image, 5<<10)
	r.run("verify", folder).ends(11)
}

// A VM that does not start is published, and the same command starts it.
func TestStartThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	node, to := r.proxmox()
	migrate := []string{"migrate", r.url(), "web01", "--to", to, "--staging", r.vms(), "--start"}
	node.SetFaults(pve.Faults{Tasks: map[string]string{"qmstart": "start failed: Cannot allocate memory"}})
	r.source(migrate...).ends(9).says("the VM is published, but does not start", "run the same command again")
	node.SetFaults(pve.Faults{})
	r.source(migrate...).ends(0).says("web01 is migrated", "It runs", "Its console:")
}

// The outage of a warm migration that starts the VM lasts until it runs. It is not taken back while it does.
func TestWarmStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, writing()).trusting()
	node, to := r.proxmox()
	u := r.beginTo(to, "web01", "--staging", r.vms(), "--warm", "--interval", "300ms", "--transport", "nfc", "--start")
	u.rounds(2)
	r.run("cutover", r.onlyRun()).ends(0)
	var out struct {
		Facts struct{ Outage *journal.Outage }
	}
	must(t, json.Unmarshal(u.last(), &out))
	u.succeeds()
	if o := out.Facts.Outage; o == nil || !o.Started {
		t.Errorf("outage: %+v", o)
	}
	r.asFound(inventory.PoweredOff)
	r.source("rollback", r.onlyRun(), "--withdraw").ends(6).says("running")
	if ids := node.VMIDs(); len(ids) != 1 {
		t.Errorf("guests %v", ids)
	}
}
