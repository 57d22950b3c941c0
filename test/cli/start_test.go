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

// Before the copy, decamp refuses --start for a target that does not support it, and for several targets.
func TestStartIsRefusedBeforeTheCopy(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 64, Disks: []lab.Disk{{Capacity: 1 << 20}}}}}).withFingerprint()
	r.migrate("web01", "--start").wantExit(7).wantOutput("does not support --start", "omit --start")
	r.migrate("web01", "--start", "--dry-run").wantExit(7).wantOutput("does not support --start")
	r.migrate("web01", "--start", "--to", "dir:"+r.dir).wantExit(2).wantOutput("several copies would run")
	if n := r.lab.Stats().BodyBytes; n > 0 {
		t.Errorf("the source sent %d bytes, want 0", n)
	}
}

// decamp migrate --start starts the delivered VM at the target, and its guest boots.
func TestMigrateAndStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, NICs: []lab.NIC{{Model: "vmxnet3"}},
		Disks: []lab.Disk{{File: guest.BootSector(t, 0), Controller: "pvscsi"}}}}}).withFingerprint()
	node, to := r.startProxmox()
	migrate := []string{"migrate", r.url(), "web01", "--to", to, "--staging", r.vmsDir(), "--json"}
	var out struct {
		Facts struct{ Started *targets.Started }
	}
	lines := strings.Split(strings.TrimSpace(r.runOnSource(append(migrate, "--start")...).wantExit(0).stdout), "\n")
	must(t, json.Unmarshal([]byte(lines[len(lines)-1]), &out))
	if s := out.Facts.Started; s == nil || !strings.Contains(s.Console, "vmid=100") {
		t.Errorf("started: %+v", s)
	}
	for serial := ""; !strings.Contains(serial, bootMarker); {
		text, err := os.ReadFile(node.Serial(100))
		must(t, err)
		serial = string(text)
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatalf("the guest does not boot: %s", serial)
		}
	}
	text := migrate[:len(migrate)-1]
	if again := r.runOnSource(text...).wantExit(0).wantOutput("was migrated before", "nothing to do"); strings.Contains(again.stdout, "It is off") {
		t.Error(again.stdout)
	}
}

// decamp verify of a delivered VM reports that decamp started it. It verifies a disk that the user exports from the target
// under the name of the image.
func TestVerifyAfterStartAtTheTarget(t *testing.T) {
	t.Parallel()
	disk := guest.BootSector(t, 0)
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, NICs: []lab.NIC{{Model: "vmxnet3"}},
		Disks: []lab.Disk{{File: disk, Controller: "pvscsi"}}}}}).withFingerprint()
	_, to := r.startProxmox()
	migrate := []string{"migrate", r.url(), "web01", "--to", to, "--staging", r.vmsDir()}
	r.runOnSource(migrate...).wantExit(0)
	folder := filepath.Join(r.vmsDir(), "web01")
	if off := r.run("verify", folder).wantExit(3).wantOutput("before the first start"); strings.Contains(off.stderr, "started the VM") {
		t.Error(off.stderr)
	}
	r.runOnSource(append(migrate, "--start")...).wantExit(0)
	r.run("verify", folder).wantExit(3).wantOutput("decamp started the VM there on", "as expected after a start")
	image := filepath.Join(folder, "web01-disk0.raw")
	exported, err := os.ReadFile(disk)
	must(t, err)
	must(t, os.WriteFile(image, exported, 0o600))
	r.run("verify", folder).wantExit(0)
	writeBit(t, image, 5<<10)
	r.run("verify", folder).wantExit(11)
}

// A VM that fails to start is published nevertheless. The same command starts it later.
func TestFailedStartIsRetried(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	node, to := r.startProxmox()
	migrate := []string{"migrate", r.url(), "web01", "--to", to, "--staging", r.vmsDir(), "--start"}
	node.SetFaults(pve.Faults{Tasks: map[string]string{"qmstart": "start failed: Cannot allocate memory"}})
	r.runOnSource(migrate...).wantExit(9).wantOutput("the VM is published, but does not start", "run the same command again")
	node.SetFaults(pve.Faults{})
	r.runOnSource(migrate...).wantExit(0).wantOutput("web01 is migrated", "It runs", "Its console:")
}

// With --start, the outage of a warm migration ends when the VM runs at the target. decamp rollback refuses a running VM.
func TestWarmStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, writingLab()).withFingerprint()
	node, to := r.startProxmox()
	u := r.startMigrationTo(to, "web01", "--staging", r.vmsDir(), "--warm", "--interval", "300ms", "--transport", "nfc", "--start")
	u.waitRounds(2)
	r.run("cutover", r.onlyRun()).wantExit(0)
	var out struct {
		Facts struct{ Outage *journal.Outage }
	}
	must(t, json.Unmarshal(u.readLast(), &out))
	u.waitSuccess()
	if o := out.Facts.Outage; o == nil || !o.Started {
		t.Errorf("outage: %+v", o)
	}
	r.checkRestored(inventory.PoweredOff)
	r.runOnSource("rollback", r.onlyRun(), "--withdraw").wantExit(6).wantOutput("running")
	if ids := node.VMIDs(); len(ids) != 1 {
		t.Errorf("guests %v", ids)
	}
}
