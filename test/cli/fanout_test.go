package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
)

// second is another folder for VMs, and the flags that name it.
func (r *rig) second() (folder string, args []string) {
	r.t.Helper()
	folder = filepath.Join(r.dir, "second")
	must(r.t, os.MkdirAll(folder, 0o755))
	return folder, []string{"--to", "dir:" + folder}
}

// isIn checks that web01 is published in a folder, and proven there.
func (r *rig) isIn(folder string) {
	r.t.Helper()
	r.matchesSource(filepath.Join(folder, "web01"), "raw")
	r.run("verify", filepath.Join(folder, "web01")).ends(0).says("is identical with the copied data")
}

// Two folders, one reading: by either transport, from a VM that is powered off on the way.
func TestFanOut(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"https", "landing"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			cfg := small()
			cfg.VMs[0].PoweredOn = true
			portmap := loopback.Reserve(t)
			cfg.NFS = lab.NFS{Portmap: portmap}
			r := newRig(t, cfg).trusting()
			second, args := r.second()
			args = append(args, "--power-off", "--spot", "0", "--transport", transport, "--landing-listen", "127.0.0.1:0", "--landing-portmap", portmap)
			r.migrate("web01", args...).ends(0).says("published in "+r.vms(), "published in "+second, second+": copy")
			r.isIn(r.vms())
			r.isIn(second)
			if off := r.lab.Stats().SOAP["ShutdownGuest"]; off > 1 {
				t.Errorf("the guest was asked %d times to shut down", off)
			}
			if wire := r.diskBytes(); transport == "https" && wire > 20<<20 {
				t.Errorf("%d bytes came over the wire for two disks of 18 MiB", wire)
			}
			r.migrate("web01", args...).ends(0).says("was migrated before")
		})
	}
}

// A destination that fills up in the middle of a copy fails alone; with more room the same
// command goes on with it, and leaves the other as it is.
func TestFanOutSurvivesAFullDestination(t *testing.T) {
	t.Parallel()
	r := newRig(t, slow()).trusting()
	second, args := r.second()
	mount(t, second, "size=120m")
	u := r.begin("web01", args...)
	r.amid(u, 16<<20)
	fill(t, filepath.Join(second, "filler"))
	r.lab.SetLimits(lab.Limits{})
	if code := u.finished(); code != 9 {
		t.Fatalf("exit code %d, want 9 (full): %s", code, &u.screen)
	}
	r.run("verify", filepath.Join(r.vms(), "web01")).ends(0)
	if left, _ := filepath.Glob(filepath.Join(second, "web01")); len(left) > 0 {
		t.Fatal("a VM is published in the full folder")
	}
	must(t, os.Remove(filepath.Join(second, "filler")))
	r.migrate("web01", args...).ends(0).says("was migrated before", "published in "+second)
	r.sameAsSource(filepath.Join(second, "web01", "web01-disk0.raw"), "web01", 0)
}

// fill fills the file system.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for b := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(b)
	}
	for b := make([]byte, 4096); ; {
		if _, err := f.Write(b); err != nil {
			return
		}
	}
}

// Killed in the middle, both runs go on where they were, and again read once.
func TestKilledFanOutGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, slow()).trusting()
	second, args := r.second()
	u := r.begin("web01", args...)
	u.untilSafe(r, r.vms(), second)
	u.end(syscall.SIGKILL)
	_, missing := r.proven(r.vms())
	_, there := r.proven(second)
	r.lab.SetLimits(lab.Limits{})
	r.lab.ResetStats()
	r.migrate("web01", append(args, "--spot", "0")...).ends(0).says("published in "+r.vms(), "published in "+second)
	r.sameAsSource(r.image(0), "web01", 0)
	r.sameAsSource(filepath.Join(second, "web01", "web01-disk0.raw"), "web01", 0)
	if wire := r.diskBytes(); wire > max(missing, there)+sampled {
		t.Errorf("%d bytes came over the wire after the kill, with %d and %d missing", wire, missing, there)
	}
}

// Given up, neither folder holds anything.
func TestDiscardedFanOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, slow()).trusting()
	second, args := r.second()
	u := r.begin("web01", args...)
	u.untilEvent(journal.DiskStarted, "copy")
	u.end(syscall.SIGINT)
	res := r.migrate("web01", append(args, "--discard")...).ends(0)
	if n := strings.Count(res.stdout, "is discarded"); n != 2 {
		t.Errorf("%d runs given up: %s", n, res.stdout)
	}
	for _, folder := range []string{r.vms(), second} {
		if list, err := os.ReadDir(folder); err != nil || len(list) > 0 {
			t.Errorf("%s holds %v, %v", folder, list, err)
		}
	}
}
