package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/lane"
)

// waitExit waits for the end of the migration and returns its exit code.
func (u *migration) waitExit() int {
	u.t.Helper()
	for u.events.Scan() {
		u.lastEvent = u.events.Text()
	}
	_ = u.Wait() // the exit code has the result
	return u.ProcessState.ExitCode()
}

func (r *rig) imagePath(n int) string {
	return filepath.Join(r.vmsDir(), "web01", fmt.Sprintf("web01-disk%d.raw", n))
}

// partialImage returns the path of an image before it is published.
func (r *rig) partialImage(n int) string {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.vmsDir(), "web01.partial-*", fmt.Sprintf("web01-disk%d.raw", n)))
	must(r.t, err)
	if len(found) != 1 {
		r.t.Fatalf("partial images %v, want one", found)
	}
	return found[0]
}

// checkStillCopying fails the test if the lab has sent the whole disk of slowLab, because then the test acts too late.
func (r *rig) checkStillCopying() {
	r.t.Helper()
	if sent := r.diskBytes(); sent >= slowBytes {
		r.t.Fatalf("the copy has ended: %d bytes were sent", sent)
	}
}

// checkFaultsHappened fails the test if a fault with a count has not happened that often.
func (r *rig) checkFaultsHappened() {
	r.t.Helper()
	for _, f := range r.lab.Faults().List() {
		if f.Count > 0 {
			r.t.Errorf("a fault happened less often than planned: %+v", f)
		}
	}
}

func TestHostRestartedDuringCopy(t *testing.T) {
	t.Parallel()
	r := newRig(t, slowLab()).withFingerprint()
	u := r.startMigration("web01")
	r.slowDownAt(u, 8<<20)
	must(t, r.lab.Restart())
	r.checkStillCopying()
	r.lab.SetLimits(lab.Limits{})
	if code := u.waitExit(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	r.compareImage(r.imagePath(0), "web01", 0)
}

func TestSessionEndedDuringCopy(t *testing.T) {
	t.Parallel()
	r := newRig(t, slowLab()).withFingerprint()
	u := r.startMigration("web01")
	r.slowDownAt(u, 8<<20)
	r.lab.KillSessions()
	r.checkStillCopying()
	r.lab.SetLimits(lab.Limits{})
	if code := u.waitExit(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	r.compareImage(r.imagePath(0), "web01", 0)
}

// A new certificate ends the run with a Denied error. The run continues when the user accepts the certificate.
func TestCertificateChangedDuringCopy(t *testing.T) {
	t.Parallel()
	r := newRig(t, slowLab()).withFingerprint()
	u := r.startMigration("web01")
	u.untilCopied(8 << 20)
	must(t, r.lab.ChangeCertificate())
	r.checkStillCopying()
	if code := u.waitExit(); code != 4 {
		t.Fatalf("exit code %d, want 4 (denied)", code)
	}
	r.migrate("web01").wantExit(4).wantOutput("Remedy: ")
	r.lab.SetLimits(lab.Limits{})
	r.withFingerprint().migrate("web01").wantExit(0)
	r.compareImage(r.imagePath(0), "web01", 0)
}

// decamp retries after wrong answers to range requests, or fails with a remedy. It never copies data of another range.
func TestWrongResponsesAreRetriedOrRefused(t *testing.T) {
	t.Parallel()
	for _, f := range []lab.Fault{
		{Kind: lab.FaultStatus, Status: 503, Count: 5},
		{Kind: lab.FaultReset, At: 100_000, Count: 3},
		{Kind: lab.FaultShort, At: 65_536, Count: 3},
		{Kind: lab.FaultShortLength, At: 65_536, Count: 3},
		{Kind: lab.FaultWrongRange, At: 4096, Count: 2},
		{Kind: lab.FaultIgnoreRange, Count: 2},
	} {
		if !lane.Slow && f.Kind != lab.FaultStatus && f.Kind != lab.FaultShort && f.Kind != lab.FaultWrongRange {
			continue // the tests of package https have all of them
		}
		t.Run(string(f.Kind), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, smallLab()).withFingerprint()
			f.Path, f.Method, f.Skip = "-flat.vmdk", "GET", 1
			_, err := r.lab.Faults().Add(f)
			must(t, err)
			res := r.migrate("web01")
			if res.code != 0 { // nothing is published, and the same command continues
				res.wantOutput("Remedy: ")
				if left, _ := filepath.Glob(r.imagePath(0)); len(left) > 0 {
					t.Fatalf("published after %s", res.stderr)
				}
				r.lab.Faults().Clear()
				r.migrate("web01").wantExit(0)
			}
			r.checkFaultsHappened()
			r.compareImage(r.imagePath(0), "web01", 0)
			r.compareImage(r.imagePath(1), "web01", 1)
		})
	}
}

// If a bit of an image flips after the copy, decamp reports the chunk and publishes nothing. The same command copies only
// that chunk and publishes the VM.
func TestBitFlippedBetweenCopyAndVerify(t *testing.T) {
	t.Parallel()
	cfg := slowLab()
	cfg.VMs[0].Disks = append([]lab.Disk{{Capacity: 8 << 20, Fill: 60, Seed: 5}}, cfg.VMs[0].Disks...)
	cfg.VMs[0].Disks[1].Capacity = 64 << 20
	cfg.Limits = lab.Limits{}
	r := newRig(t, cfg).withFingerprint().withStepwiseEvents()
	u := r.startMigration("web01")
	done := u.untilEvent(journal.DiskDone, "copy").Disk // decamp waits at its next event, so the step verify cannot begin
	flipBit(t, r.partialImage(int(done-2000)), 3<<20+77)
	if code := u.waitExit(); code != 8 {
		t.Fatalf("exit code %d, want 8 (corrupt): %s", code, u.lastEvent)
	}
	bad := r.journaledEvents(journal.ChunkBad, "verify")
	if len(bad) != 1 || bad[0].Disk != done || !strings.Contains(bad[0].Message, fmt.Sprintf("at %d", 3<<20)) {
		t.Fatalf("bad chunks in the journal: %+v", bad)
	}
	if _, err := os.Stat(filepath.Join(r.vmsDir(), "web01")); !os.IsNotExist(err) {
		t.Fatal("the VM is published")
	}
	r.lab.ResetStats()
	r.migrate("web01", "--spot", "0").wantExit(0) // a sample would include all of the disks
	if wire := r.diskBytes(); wire > 32<<20 {
		t.Errorf("the source sent %d bytes to repair one chunk", wire)
	}
	r.compareImage(r.imagePath(0), "web01", 0)
	r.compareImage(r.imagePath(1), "web01", 1)
}

// A full target ends the run with a Full error and a remedy. The run continues when there is free space.
func TestFullTarget(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	mountTmpfs(t, r.vmsDir(), "size=8m")
	r.migrate("web01").wantExit(9).wantOutput("Remedy: ")
	remountTmpfs(t, r.vmsDir(), "size=200m")
	r.migrate("web01").wantExit(0)
	r.compareImage(r.imagePath(0), "web01", 0)
	r.compareImage(r.imagePath(1), "web01", 1)
}

// mountTmpfs mounts a new tmpfs at dir until the test ends.
func mountTmpfs(t *testing.T, dir, options string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	must(t, syscall.Mount("decamp-test", dir, "tmpfs", 0, options))
	// MNT_DETACH, because a child process of another test inherits the open files until it has executed its program.
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
}

func remountTmpfs(t *testing.T, dir, options string) {
	t.Helper()
	must(t, syscall.Mount("decamp-test", dir, "tmpfs", syscall.MS_REMOUNT, options))
}

// readOnlyCalls are the API calls that change nothing at the source except the session of decamp.
var readOnlyCalls = []string{
	"RetrieveServiceContent", "Login", "Logout", "SessionIsActive", "CurrentTime",
	"RetrieveProperties", "RetrievePropertiesEx", "ContinueRetrievePropertiesEx", "CancelRetrievePropertiesEx",
	"CreateContainerView", "DestroyView", "FindByUuid", "FindByInventoryPath", "FindAllByUuid", "FindChild",
	"QueryChangedDiskAreas", "AcquireGenericServiceTicket", "RetrieveInternalContent", "NfcGetVmFiles",
	"QueryDateTime", "QueryOptions", "HasPrivilegeOnEntities", // calls of the checks before the migration
}

// A cold migration changes nothing at the source, except the power state if the user requests that.
func TestSourceIsOnlyReadAndPoweredOff(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]struct {
		power bool
		args  []string
	}{"off": {}, "running": {power: true, args: []string{"--power-off"}}, "NFC": {args: []string{"--transport", "nfc"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := smallLab()
			cfg.VMs[0].PoweredOn = v.power
			r := newRig(t, cfg).withFingerprint()
			allowed := readOnlyCalls
			args := append([]string{"--spot", "1M,4"}, v.args...)
			if v.power {
				allowed = append(slices.Clone(readOnlyCalls), "ShutdownGuest")
			}
			r.migrate("web01", args...).wantExit(0)
			stats := r.lab.Stats()
			if len(stats.SOAP) < 4 {
				t.Fatalf("the lab received only %v", stats.SOAP)
			}
			for method := range stats.SOAP {
				if !slices.Contains(allowed, method) {
					t.Errorf("decamp called %s", method)
				}
			}
			for path, s := range stats.Paths {
				for method := range s.Methods {
					if method != "GET" && method != "HEAD" && !(method == "POST" && strings.HasPrefix(path, "/sdk")) {
						t.Errorf("decamp sent %s %s", method, path)
					}
				}
			}
		})
	}
}
