package cli

import (
	"os"
	"path/filepath"
	"slices"
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

// verifiedBytes returns how many bytes of the disks are in the manifests of the partial VM in each of the folders, and how
// many are missing in at least one of them.
func (r *rig) verifiedBytes(folders ...string) (safe, missing int64) {
	r.t.Helper()
	logs := map[string][]*manifest.Log{} // manifests of the folders, by file name
	for _, folder := range folders {
		for _, path := range r.manifestPaths(folder) {
			log, err := manifest.Open(path)
			must(r.t, err)
			defer log.Close()
			logs[filepath.Base(path)] = append(logs[filepath.Base(path)], log)
		}
	}
	for name, same := range logs {
		if len(same) != len(folders) {
			r.t.Fatalf("%d of %d folders contain %s", len(same), len(folders), name)
		}
		for c := range same[0].Chunks() {
			if slices.ContainsFunc(same, func(l *manifest.Log) bool { return !l.Has(c) }) {
				missing += manifest.ChunkSize
			} else {
				safe += manifest.ChunkSize
			}
		}
	}
	if safe == 0 {
		r.t.Fatalf("no chunk is in the manifests of %q, so the test checks nothing", folders)
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

// maxReread is how much a resumed copy of two disks, or of one disk to two folders, reads again at most: the first 4 and
// 16 random chunks for each image.
const maxReread = 2 * 20 << 20

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
