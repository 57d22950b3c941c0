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

// secondTarget creates another folder for VMs. It returns the folder and the flags that select it as a target.
func (r *rig) secondTarget() (folder string, args []string) {
	r.t.Helper()
	folder = filepath.Join(r.dir, "second")
	must(r.t, os.MkdirAll(folder, 0o755))
	return folder, []string{"--to", "dir:" + folder}
}

// checkPublishedIn checks that web01 is published in a folder, and verifies it.
func (r *rig) checkPublishedIn(folder string) {
	r.t.Helper()
	r.compareImages(filepath.Join(folder, "web01"), "raw")
	r.run("verify", filepath.Join(folder, "web01")).wantExit(0).wantOutput("is identical with the copied data")
}

// A migration to two folders reads the source once and powers the VM off once.
func TestFanOut(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"https", "landing"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			cfg := smallLab()
			cfg.VMs[0].PoweredOn = true
			portmap := loopback.Reserve(t)
			cfg.NFS = lab.NFS{Portmap: portmap}
			r := newRig(t, cfg).withFingerprint()
			second, args := r.secondTarget()
			args = append(args, "--power-off", "--spot", "0", "--transport", transport, "--landing-listen", "127.0.0.1:0", "--landing-portmap", portmap)
			r.migrate("web01", args...).wantExit(0).wantOutput("published in "+r.vmsDir(), "published in "+second, second+": copy")
			r.checkPublishedIn(r.vmsDir())
			r.checkPublishedIn(second)
			if off := r.lab.Stats().SOAP["ShutdownGuest"]; off > 1 {
				t.Errorf("got %d requests to shut the guest down, want at most 1", off)
			}
			if wire := r.diskBytes(); transport == "https" && wire > 20<<20 {
				t.Errorf("the source sent %d bytes for two disks of 18 MiB", wire)
			}
			r.migrate("web01", args...).wantExit(0).wantOutput("was migrated before")
		})
	}
}

// A target that fills up during a copy does not affect the other target. After the user frees space, the same command
// continues the copy to the full target only.
func TestFanOutSurvivesAFullDestination(t *testing.T) {
	t.Parallel()
	r := newRig(t, slowLab()).withFingerprint()
	second, args := r.secondTarget()
	mountTmpfs(t, second, "size=120m")
	u := r.startMigration("web01", args...)
	r.slowDownAt(u, 16<<20)
	fillFileSystem(t, filepath.Join(second, "filler"))
	r.lab.SetLimits(lab.Limits{})
	if code := u.waitExit(); code != 9 {
		t.Fatalf("exit code %d, want 9 (full): %s", code, &u.stderr)
	}
	r.run("verify", filepath.Join(r.vmsDir(), "web01")).wantExit(0)
	if left, _ := filepath.Glob(filepath.Join(second, "web01")); len(left) > 0 {
		t.Fatal("a VM is published in the full folder")
	}
	must(t, os.Remove(filepath.Join(second, "filler")))
	r.migrate("web01", args...).wantExit(0).wantOutput("was migrated before", "published in "+second)
	r.compareImage(filepath.Join(second, "web01", "web01-disk0.raw"), "web01", 0)
}

// fillFileSystem writes to path until the file system is full.
func fillFileSystem(t *testing.T, path string) {
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

// After decamp is killed during a copy to two folders, both runs continue and read the source once.
func TestKilledFanOutResumes(t *testing.T) {
	t.Parallel()
	r := newRig(t, slowLab()).withFingerprint()
	second, args := r.secondTarget()
	u := r.startMigration("web01", args...)
	u.untilManifestsGrow(r, r.vmsDir(), second)
	u.endWith(syscall.SIGKILL)
	_, missing := r.verifiedBytes(r.vmsDir(), second) // the copy continues with the chunks that one of them lacks
	r.lab.SetLimits(lab.Limits{})
	r.lab.ResetStats()
	r.migrate("web01", append(args, "--spot", "0")...).wantExit(0).wantOutput("published in "+r.vmsDir(), "published in "+second)
	r.compareImage(r.imagePath(0), "web01", 0)
	r.compareImage(filepath.Join(second, "web01", "web01-disk0.raw"), "web01", 0)
	if wire := r.diskBytes(); wire > missing+maxReread {
		t.Errorf("the source sent %d bytes after the kill, with %d missing", wire, missing)
	}
}

// --discard removes the files from both folders.
func TestDiscardedFanOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, slowLab()).withFingerprint()
	second, args := r.secondTarget()
	u := r.startMigration("web01", args...)
	u.untilEvent(journal.DiskStarted, "copy")
	u.endWith(syscall.SIGINT)
	res := r.migrate("web01", append(args, "--discard")...).wantExit(0)
	if n := strings.Count(res.stdout, "is discarded"); n != 2 {
		t.Errorf("got %d discarded runs, want 2: %s", n, res.stdout)
	}
	for _, folder := range []string{r.vmsDir(), second} {
		if list, err := os.ReadDir(folder); err != nil || len(list) > 0 {
			t.Errorf("%s contains %v, %v, want nothing", folder, list, err)
		}
	}
}
