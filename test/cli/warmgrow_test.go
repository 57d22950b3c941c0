package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/test/lane"
)

// grown0 and grown1 are the new sizes of the disks of writingLab. Both disks end within a chunk.
const grown0, grown1 = 34<<20 + 512<<10, 6<<20 + 3<<10

// growDisks makes both disks larger. If the VM runs, its guest then writes to them.
func (r *rig) growDisks() {
	r.t.Helper()
	must(r.t, r.lab.GrowDisk("web01", 0, grown0))
	must(r.t, r.lab.GrowDisk("web01", 1, grown1))
	if r.sourceVM("web01").Power == inventory.PoweredOn {
		must(r.t, r.lab.GuestWrites("web01", 60))
	}
}

// checkMovedGrown checks that the images match the larger disks of the powered-off VM, and that the record contains their
// sizes.
func (r *rig) checkMovedGrown(format string) {
	r.t.Helper()
	folder := filepath.Join(r.vmsDir(), "web01")
	r.checkRestored(inventory.PoweredOff)
	r.compareImages(folder, format)
	r.checkOnlyPublished("web01")
	record, err := dir.ReadRecord(folder)
	must(r.t, err)
	for i, want := range []int64{grown0, grown1} {
		if got := record.Images[i].Size; got != want || record.Source.Disks[i].Capacity != want {
			r.t.Errorf("the record of disk %d has %d bytes and an image of %d, want %d", i, record.Source.Disks[i].Capacity, got, want)
		}
	}
	r.run("verify", folder).wantExit(0)
}

// Disks that grow while a run waits are read and compared completely in one more round, also after the command for the
// cutover. The images match the disks of the powered-off VM.
func TestWarmDiskGrown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		transport, format string
		fails             bool
	}{{"https", "qcow2", false}, {"nfc", "raw", false}, {"nfc", "qcow2", true}, {"landing", "raw", false}} {
		if !lane.Slow && c.transport != "landing" && !c.fails {
			continue // TestWarmDiskGrownAndKilled uses NFC
		}
		t.Run(fmt.Sprintf("%s %s, fails %v", c.transport, c.format, c.fails), func(t *testing.T) {
			t.Parallel()
			cfg := writingLab()
			cfg.CBT.GrowthFails = c.fails
			args := append(transportFlags(t, &cfg)[c.transport], "--warm", "--format", c.format)
			r := newRig(t, cfg).withFingerprint()
			u := r.startMigration("web01", args...)
			u.untilEvent(journal.StepStarted, "wait")
			r.growDisks()
			r.run("cutover", r.onlyRun()).wantExit(0)
			event := u.untilEvent(journal.Noted, "snapshot")
			if !strings.Contains(event.Message, "has grown from 20 to 34 MiB: the whole disk is read and compared once; the first round took") {
				t.Errorf("message %q", event.Message)
			}
			u.waitSuccess()
			r.checkMovedGrown(c.format)
			if n := len(r.journaledEvents(journal.RoundDone, "round")); n < 2 {
				t.Errorf("%d rounds while the VM ran, want 2 or more", n)
			}
		})
	}
}

// A run that is killed at any event after its disks grew continues with the same command.
func TestWarmDiskGrownAndKilled(t *testing.T) {
	t.Parallel()
	for i, m := range []moment{
		{journal.Noted, "snapshot"}, {journal.StepDone, "snapshot"}, {journal.DiskStarted, "round"}, {journal.RoundDone, "round"},
		{journal.StepStarted, "verify round"}, {journal.StepStarted, "wait"}, {journal.StepStarted, "power off"}, {journal.StepDone, "power off"},
		{journal.DiskStarted, "last round"}, {journal.DiskDone, "last round"}, {journal.StepStarted, "verify"},
	} {
		if !lane.Slow && (m != moment{journal.StepDone, "power off"}) {
			continue // the tests of package migrate kill a run after each operation
		}
		format := []string{"raw", "qcow2"}[i%2]
		t.Run(fmt.Sprint(format, " ", m.kind, " ", m.step), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, writingLab()).withFingerprint().withStepwiseEvents()
			u := r.startWarmIdle("--format", format)
			u.untilEvent(journal.StepStarted, "wait")
			r.growDisks()
			r.run("cutover", r.onlyRun()).wantExit(0)
			u.untilEvent(m.kind, m.step)
			u.endWith(syscall.SIGKILL)
			r.startWarmIdle("--format", format).waitSuccess()
			r.checkMovedGrown(format)
		})
	}
}

// If decamp is killed after any event and the disks grow before it starts again, the same command continues. It refuses
// that only if all disks are copied and the VM is off.
func TestWarmDiskGrowsAfterKill(t *testing.T) {
	t.Parallel()
	for i, m := range []moment{
		{journal.StepDone, "snapshot"}, {journal.DiskStarted, "round"}, {journal.RoundDone, "round"}, {journal.StepStarted, "verify round"},
		{journal.StepStarted, "wait"}, {journal.StepStarted, "power off"}, {journal.StepDone, "power off"},
		{journal.DiskStarted, "last round"}, {journal.DiskDone, "last round"}, {journal.StepDone, "last round"},
	} {
		if !lane.Slow && (m != moment{journal.StepDone, "power off"}) {
			continue // the tests of package migrate kill a run after each operation
		}
		format := []string{"qcow2", "raw"}[i%2]
		t.Run(fmt.Sprint(format, " ", m.kind, " ", m.step), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, writingLab()).withFingerprint().withStepwiseEvents()
			args := []string{"--format", format, "--cutover", "2026-01-01T00:00Z"} // immediately
			u := r.startWarmIdle(args...)
			u.untilEvent(m.kind, m.step)
			u.endWith(syscall.SIGKILL)
			r.runOnSource("clean", r.url()).wantExit(0) // a disk with a snapshot cannot grow
			r.growDisks()
			u = r.startWarmIdle(args...)
			switch code := u.waitExit(); {
			case code == 0:
				r.checkMovedGrown(format)
			case code != exitConflict || len(r.journaledEvents(journal.StepDone, "last round")) == 0:
				t.Fatalf("exit code %d: %s", code, u.stderr.String())
			default:
				r.runOnSource("cancel", r.onlyRun()).wantExit(0).wantOutput("is discarded")
				r.checkDiscarded()
			}
		})
	}
}

// Disks that grow after the power-off are compared during the outage, and the output reports that.
func TestWarmDiskGrowsInTheOutage(t *testing.T) {
	t.Parallel()
	cfg := writingLab()
	r := newRig(t, cfg).withFingerprint().withStepwiseEvents()
	u := r.startWarmIdle("--cutover", "2026-01-01T00:00Z")
	u.untilEvent(journal.StepStarted, "last round")
	u.endWith(syscall.SIGKILL)
	r.growDisks()
	u = r.startWarmIdle()
	event := u.untilEvent(journal.Noted, "last round")
	if !strings.Contains(event.Message, "has grown from") {
		t.Errorf("message %q", event.Message)
	}
	u.waitSuccess()
	r.checkMovedGrown("raw")
}
