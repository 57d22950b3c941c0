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

// What the disks of writing become: both end in the middle of a chunk.
const grown0, grown1 = 34<<20 + 512<<10, 6<<20 + 3<<10

// grow makes both disks larger, and lets the guest write to all of them.
func (r *rig) grow() {
	r.t.Helper()
	must(r.t, r.lab.GrowDisk("web01", 0, grown0))
	must(r.t, r.lab.GrowDisk("web01", 1, grown1))
	if r.vm("web01").Power == inventory.PoweredOn {
		must(r.t, r.lab.GuestWrites("web01", 60))
	}
}

// movedGrown checks that the images are the larger disks at the time of the power-off, and that the output and the
// record contain their sizes.
func (r *rig) movedGrown(format string) {
	r.t.Helper()
	folder := filepath.Join(r.vms(), "web01")
	r.asFound(inventory.PoweredOff)
	r.matchesSource(folder, format)
	r.onlyPublished("web01")
	record, err := dir.ReadRecord(folder)
	must(r.t, err)
	for i, want := range []int64{grown0, grown1} {
		if got := record.Images[i].Size; got != want || record.Source.Disks[i].Capacity != want {
			r.t.Errorf("disk %d is on record with %d bytes and an image of %d, want %d", i, record.Source.Disks[i].Capacity, got, want)
		}
	}
	r.run("verify", folder).ends(0)
}

// Disks that grow while a run waits are compared in one more round, also if the order to cut
// over came, and arrive as they are at the power-off; what changed across that is not asked.
func TestWarmDiskGrown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		way, format string
		fails       bool
	}{{"https", "qcow2", false}, {"nfc", "raw", false}, {"nfc", "qcow2", true}, {"landing", "raw", false}} {
		if !lane.Slow && c.way != "landing" && !c.fails {
			continue // TestWarmDiskGrownAndKilled has one by nfc
		}
		t.Run(fmt.Sprintf("%s %s, fails %v", c.way, c.format, c.fails), func(t *testing.T) {
			t.Parallel()
			cfg := writing()
			cfg.CBT.GrowthFails = c.fails
			args := append(ways(t, &cfg)[c.way], "--warm", "--format", c.format)
			r := newRig(t, cfg).trusting()
			u := r.begin("web01", args...)
			u.untilEvent(journal.StepStarted, "wait")
			r.grow()
			r.run("cutover", r.onlyRun()).ends(0)
			told := u.untilEvent(journal.Noted, "snapshot")
			if !strings.Contains(told.Message, "has grown from 20 to 34 MiB: the whole disk is read and compared once; the first round took") {
				t.Errorf("told %q", told.Message)
			}
			u.succeeds()
			r.movedGrown(c.format)
			if n := len(r.journaled(journal.RoundDone, "round")); n < 2 {
				t.Errorf("%d rounds while the VM ran", n)
			}
		})
	}
}

// Killed at any arrow after its disks grew, snapshot and all, the same command goes on.
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
			r := newRig(t, writing()).trusting().steps()
			u := r.resting("--format", format)
			u.untilEvent(journal.StepStarted, "wait")
			r.grow()
			r.run("cutover", r.onlyRun()).ends(0)
			u.untilEvent(m.kind, m.step)
			u.end(syscall.SIGKILL)
			r.resting("--format", format).succeeds()
			r.movedGrown(format)
		})
	}
}

// decamp is killed after any event, and the disks grow before it starts again. The same command continues, unless all
// disks were copied and the VM is off.
func TestWarmDiskGrowsWhileDead(t *testing.T) {
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
			r := newRig(t, writing()).trusting().steps()
			args := []string{"--format", format, "--cutover", "2026-01-01T00:00Z"} // at once
			u := r.resting(args...)
			u.untilEvent(m.kind, m.step)
			u.end(syscall.SIGKILL)
			r.source("clean", r.url()).ends(0) // a disk with a snapshot does not grow
			r.grow()
			u = r.resting(args...)
			switch code := u.finished(); {
			case code == 0:
				r.movedGrown(format)
			case code != conflict || len(r.journaled(journal.StepDone, "last round")) == 0:
				t.Fatalf("exit code %d: %s", code, u.screen.String())
			default:
				r.source("cancel", r.onlyRun()).ends(0).says("is discarded")
				r.givenUp()
			}
		})
	}
}

// A disk that grows during the shutdown is compared in the outage, and the output reports that.
func TestWarmDiskGrowsInTheOutage(t *testing.T) {
	t.Parallel()
	cfg := writing()
	r := newRig(t, cfg).trusting()
	u := r.resting("--cutover", "2026-01-01T00:00Z")
	u.untilEvent(journal.StepStarted, "last round")
	u.end(syscall.SIGKILL)
	r.grow()
	u = r.resting()
	told := u.untilEvent(journal.Noted, "last round")
	if !strings.Contains(told.Message, "has grown from") {
		t.Errorf("told %q", told.Message)
	}
	u.succeeds()
	r.movedGrown("raw")
}
