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

// slowTwo is slow, with another disk.
func slowTwo() lab.Config {
	cfg := slow()
	cfg.VMs[0].Disks = append(cfg.VMs[0].Disks, lab.Disk{Capacity: 16<<20 + 512, Fill: 50, Seed: 9})
	return cfg
}

// elsewhere is another machine: records of its own, the same target.
func (r *rig) elsewhere() *rig {
	other := *r
	other.records = "state-elsewhere"
	return &other
}

// proven is how much of the disks the manifests of the VM that grows in a folder list.
func (r *rig) proven(folder string) (safe, missing int64) {
	r.t.Helper()
	for _, path := range r.manifestsIn(folder) {
		log, err := manifest.Open(path)
		must(r.t, err)
		safe += (log.Chunks() - log.Missing()) * manifest.ChunkSize
		missing += log.Missing() * manifest.ChunkSize
		must(r.t, log.Close())
	}
	if safe == 0 {
		r.t.Fatalf("nothing of %s was proven: the test is of no use", folder)
	}
	return safe, missing
}

// untilSafe waits until more than sampled was copied, and something of it was made safe, in each of the folders: a
// manifest has grown, as it does every five seconds.
func (u *under) untilSafe(r *rig, folders ...string) {
	u.t.Helper()
	u.until(1)
	had := map[string]int64{}
	for _, folder := range folders {
		had[folder] = r.manifestBytes(folder)
	}
	r.amid(u, sampled+8<<20)
	for _, folder := range folders {
		for r.manifestBytes(folder) == had[folder] {
			u.until(1)
		}
	}
}

func (r *rig) manifestBytes(folder string) (n int64) {
	r.t.Helper()
	for _, path := range r.manifestsIn(folder) {
		info, err := os.Stat(path)
		must(r.t, err)
		n += info.Size()
	}
	return n
}

// manifestsIn are the manifests of the VM that grows in a folder.
func (r *rig) manifestsIn(folder string) []string {
	r.t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.partial-*", "*.manifest"))
	must(r.t, err)
	return paths
}

// Exit codes: fault.Conflict's and fault.Transient's.
const (
	inTheWay = 6
	passing  = 10
)

// sampled is more than a resumed copy of two disks looks at of its source a second time: 16
// chunks of each, and what tests its map.
const sampled = 2 * 18 << 20

// A stopped process keeps the lock of its images. Another one with separate records, as on another machine, reports the
// owner. When the first is killed, the other continues and does not copy verified data again.
func TestTakenOverWhenTheFirstIsDead(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		if !lane.Slow && format == "raw" {
			continue // TestStoppedOneGoesOnWithItsImages has one
		}
		r := newRig(t, slowTwo()).trusting()
		u := r.begin("web01", "--format", format)
		u.untilSafe(r, r.vms())
		must(t, u.Process.Signal(syscall.SIGSTOP))
		r.elsewhere().migrate("web01", "--format", format).ends(passing).says("another decamp process uses them: process ")
		u.end(syscall.SIGKILL)

		safe, missing := r.proven(r.vms())
		r.lab.SetLimits(lab.Limits{})
		r.lab.ResetStats()
		r.elsewhere().migrate("web01", "--format", format, "--spot", "0").ends(0)
		if wire := r.diskBytes(); wire > missing+sampled {
			t.Errorf("%s: %d bytes were copied, with %d proven and %d missing", format, wire, safe, missing)
		}
		r.matchesSource(filepath.Join(r.vms(), "web01"), format)
		r.onlyPublished("web01")
	}
}

// One that is stopped and goes on was never without its images: it ends as if nothing had been.
func TestStoppedOneGoesOnWithItsImages(t *testing.T) {
	t.Parallel()
	r := newRig(t, slowTwo()).trusting()
	u := r.begin("web01")
	r.amid(u, 20<<20)
	must(t, u.Process.Signal(syscall.SIGSTOP))
	r.elsewhere().migrate("web01").ends(passing)
	r.lab.SetLimits(lab.Limits{})
	if status := u.end(syscall.SIGCONT); status.ExitStatus() != 0 {
		t.Fatalf("it ended with %d: %s", status.ExitStatus(), u.screen.String())
	}
	r.matchesSource(filepath.Join(r.vms(), "web01"), "raw")
	r.elsewhere().migrate("web01").ends(inTheWay).says("already exists")
	r.onlyPublished("web01")
}
