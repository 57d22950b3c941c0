package cli

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/test/lane"
)

// slowLabTwoDisks is slowLab with another disk.
func slowLabTwoDisks() lab.Config {
	cfg := slowLab()
	cfg.VMs[0].Disks = append(cfg.VMs[0].Disks, lab.Disk{Capacity: 16<<20 + 512, Fill: 50, Seed: 9})
	return cfg
}

// onOtherMachine returns a rig that acts as another machine: it has a separate state directory and the same target.
func (r *rig) onOtherMachine() *rig {
	other := *r
	other.records = "state-elsewhere"
	return &other
}

// verifiedBytes returns how many bytes of the disks are in the manifests of the partial VM in a folder, and how many are
// missing.
func (r *rig) verifiedBytes(folder string) (safe, missing int64) {
	r.t.Helper()
	for _, path := range r.manifestPaths(folder) {
		log, err := manifest.Open(path)
		must(r.t, err)
		safe += (log.Chunks() - log.Missing()) * manifest.ChunkSize
		missing += log.Missing() * manifest.ChunkSize
		must(r.t, log.Close())
	}
	if safe == 0 {
		r.t.Fatalf("the manifests in %s contain no chunks, so the test checks nothing", folder)
	}
	return safe, missing
}

// untilManifestsGrow waits until more than maxReread is copied and a manifest in each of the folders has grown, which
// happens every five seconds.
func (u *migration) untilManifestsGrow(r *rig, folders ...string) {
	u.t.Helper()
	u.untilCopied(1)
	had := map[string]int64{}
	for _, folder := range folders {
		had[folder] = r.manifestBytes(folder)
	}
	r.slowDownAt(u, maxReread+8<<20)
	for _, folder := range folders {
		for r.manifestBytes(folder) == had[folder] {
			u.untilCopied(1)
		}
	}
}

func (r *rig) manifestBytes(folder string) (n int64) {
	r.t.Helper()
	for _, path := range r.manifestPaths(folder) {
		info, err := os.Stat(path)
		must(r.t, err)
		n += info.Size()
	}
	return n
}

// manifestPaths returns the manifests of the partial VM in a folder.
func (r *rig) manifestPaths(folder string) []string {
	r.t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.partial-*", "*.manifest"))
	must(r.t, err)
	return paths
}

// Exit codes of fault.Conflict and fault.Transient.
const (
	conflictCode  = 6
	transientCode = 10
)

// maxReread is more than a resumed copy of two disks reads of its source again: 16 chunks of each, and the probes of the
// map.
const maxReread = 2 * 18 << 20

// A stopped process keeps the lock of its images. A process on another machine reports the owner. After the first process
// is killed, the other one continues and does not copy verified data again.
func TestRunIsTakenOverFromKilledProcess(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		if !lane.Slow && format == "raw" {
			continue // TestStoppedProcessKeepsItsImages uses raw
		}
		r := newRig(t, slowLabTwoDisks()).withFingerprint()
		u := r.startMigration("web01", "--format", format)
		u.untilManifestsGrow(r, r.vmsDir())
		must(t, u.Process.Signal(syscall.SIGSTOP))
		r.onOtherMachine().migrate("web01", "--format", format).wantExit(transientCode).wantOutput("another decamp process uses them: process ")
		u.endWith(syscall.SIGKILL)

		safe, missing := r.verifiedBytes(r.vmsDir())
		r.lab.SetLimits(lab.Limits{})
		r.lab.ResetStats()
		r.onOtherMachine().migrate("web01", "--format", format, "--spot", "0").wantExit(0)
		if wire := r.diskBytes(); wire > missing+maxReread {
			t.Errorf("%s: %d bytes were copied, with %d verified and %d missing", format, wire, safe, missing)
		}
		r.compareImages(filepath.Join(r.vmsDir(), "web01"), format)
		r.checkOnlyPublished("web01")
	}
}

// A process that is stopped and continued keeps its images and publishes the VM.
func TestStoppedProcessKeepsItsImages(t *testing.T) {
	t.Parallel()
	r := newRig(t, slowLabTwoDisks()).withFingerprint()
	u := r.startMigration("web01")
	r.slowDownAt(u, 20<<20)
	must(t, u.Process.Signal(syscall.SIGSTOP))
	r.onOtherMachine().migrate("web01").wantExit(transientCode)
	r.lab.SetLimits(lab.Limits{})
	if status := u.endWith(syscall.SIGCONT); status.ExitStatus() != 0 {
		t.Fatalf("exit code %d: %s", status.ExitStatus(), u.stderr.String())
	}
	r.compareImages(filepath.Join(r.vmsDir(), "web01"), "raw")
	r.onOtherMachine().migrate("web01").wantExit(conflictCode).wantOutput("already exists")
	r.checkOnlyPublished("web01")
}
