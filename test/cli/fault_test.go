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

// finished waits for the migration to end by itself and returns its exit code.
func (u *under) finished() int {
	u.t.Helper()
	for u.events.Scan() {
		u.final = u.events.Text()
	}
	_ = u.Wait() // the code says it
	return u.ProcessState.ExitCode()
}

func (r *rig) image(n int) string {
	return filepath.Join(r.vms(), "web01", fmt.Sprintf("web01-disk%d.raw", n))
}

// growing is where the image is before it is published.
func (r *rig) growing(n int) string {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.vms(), "web01.partial-*", fmt.Sprintf("web01-disk%d.raw", n)))
	must(r.t, err)
	if len(found) != 1 {
		r.t.Fatalf("growing images: %v", found)
	}
	return found[0]
}

// stillCopies fails the test if the lab has sent all of the disk of slow: the test was too late.
func (r *rig) stillCopies() {
	r.t.Helper()
	if sent := r.diskBytes(); sent >= slowBytes {
		r.t.Fatalf("%d bytes were sent: the copy is over", sent)
	}
}

// faultsMet fails the test if a fault that is counted has not happened as often as it was to.
func (r *rig) faultsMet() {
	r.t.Helper()
	for _, f := range r.lab.Faults().List() {
		if f.Count > 0 {
			r.t.Errorf("a fault did not happen: %+v", f)
		}
	}
}

func TestHostRestartedDuringCopy(t *testing.T) {
	t.Parallel()
	r := newRig(t, slow()).trusting()
	u := r.begin("web01")
	r.amid(u, 8<<20)
	must(t, r.lab.Restart())
	r.stillCopies()
	r.lab.SetLimits(lab.Limits{})
	if code := u.finished(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	r.sameAsSource(r.image(0), "web01", 0)
}

func TestSessionEndedDuringCopy(t *testing.T) {
	t.Parallel()
	r := newRig(t, slow()).trusting()
	u := r.begin("web01")
	r.amid(u, 8<<20)
	r.lab.KillSessions()
	r.stillCopies()
	r.lab.SetLimits(lab.Limits{})
	if code := u.finished(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	r.sameAsSource(r.image(0), "web01", 0)
}

// A new certificate is a Denied until the user has seen and accepted it; then the run
// goes on.
func TestCertificateChangedDuringCopy(t *testing.T) {
	t.Parallel()
	r := newRig(t, slow()).trusting()
	u := r.begin("web01")
	u.until(8 << 20)
	must(t, r.lab.ChangeCertificate())
	r.stillCopies()
	if code := u.finished(); code != 4 {
		t.Fatalf("exit code %d, want 4 (denied)", code)
	}
	r.migrate("web01").ends(4).says("Remedy: ")
	r.lab.SetLimits(lab.Limits{})
	r.trusting().migrate("web01").ends(0)
	r.sameAsSource(r.image(0), "web01", 0)
}

// What a range may be answered with, other than itself. Faults that pass are outlived;
// what is not the range asked for is never taken for data.
func TestWrongAnswersAreOutlivedOrRefused(t *testing.T) {
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
			continue // package https has them all
		}
		t.Run(string(f.Kind), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, small()).trusting()
			f.Path, f.Method, f.Skip = "-flat.vmdk", "GET", 1
			_, err := r.lab.Faults().Add(f)
			must(t, err)
			res := r.migrate("web01")
			if res.code != 0 { // refused: nothing published, and the same command continues
				res.says("Remedy: ")
				if left, _ := filepath.Glob(r.image(0)); len(left) > 0 {
					t.Fatalf("published after %s", res.stderr)
				}
				r.lab.Faults().Clear()
				r.migrate("web01").ends(0)
			}
			r.faultsMet()
			r.sameAsSource(r.image(0), "web01", 0)
			r.sameAsSource(r.image(1), "web01", 1)
		})
	}
}

// A bit that flips in an image after its disk was copied is named, nothing is published,
// and the same command copies just that chunk and finishes.
func TestBitFlippedBetweenCopyAndVerify(t *testing.T) {
	t.Parallel()
	cfg := slow()
	cfg.VMs[0].Disks = append([]lab.Disk{{Capacity: 8 << 20, Fill: 60, Seed: 5}}, cfg.VMs[0].Disks...)
	cfg.VMs[0].Disks[1].Capacity = 64 << 20
	cfg.Limits = lab.Limits{}
	r := newRig(t, cfg).trusting().steps()
	u := r.begin("web01")
	done := u.untilEvent(journal.DiskDone, "copy").Disk // decamp waits at its next event, so verify cannot begin
	flip(t, r.growing(int(done-2000)), 3<<20+77)
	if code := u.finished(); code != 8 {
		t.Fatalf("exit code %d, want 8 (corrupt): %s", code, u.final)
	}
	bad := r.journaled(journal.ChunkBad, "verify")
	if len(bad) != 1 || bad[0].Disk != done || !strings.Contains(bad[0].Message, fmt.Sprintf("at %d", 3<<20)) {
		t.Fatalf("bad chunks on record: %+v", bad)
	}
	if _, err := os.Stat(filepath.Join(r.vms(), "web01")); !os.IsNotExist(err) {
		t.Fatal("something is published")
	}
	r.lab.ResetStats()
	r.migrate("web01", "--spot", "0").ends(0) // or all of the disks is read a second time
	if wire := r.diskBytes(); wire > 32<<20 {
		t.Errorf("%d bytes came over the wire to mend one chunk", wire)
	}
	r.sameAsSource(r.image(0), "web01", 0)
	r.sameAsSource(r.image(1), "web01", 1)
}

// A target that fills up is a Full with its remedy; with more room the run goes on.
func TestFullTarget(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	mount(t, r.vms(), "size=8m")
	r.migrate("web01").ends(9).says("Remedy: ")
	remount(t, r.vms(), "size=200m")
	r.migrate("web01").ends(0)
	r.sameAsSource(r.image(0), "web01", 0)
	r.sameAsSource(r.image(1), "web01", 1)
}

// mount puts a tmpfs of its own over dir until the test ends.
func mount(t *testing.T, dir, options string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	must(t, syscall.Mount("decamp-test", dir, "tmpfs", 0, options))
	// MNT_DETACH, because a child of another test inherits our files until it has executed its program.
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
}

func remount(t *testing.T, dir, options string) {
	t.Helper()
	must(t, syscall.Mount("decamp-test", dir, "tmpfs", syscall.MS_REMOUNT, options))
}

// reading are the calls that change nothing at the source; the session they need is
// decamp's own.
var reading = []string{
	"RetrieveServiceContent", "Login", "Logout", "SessionIsActive", "CurrentTime",
	"RetrieveProperties", "RetrievePropertiesEx", "ContinueRetrievePropertiesEx", "CancelRetrievePropertiesEx",
	"CreateContainerView", "DestroyView", "FindByUuid", "FindByInventoryPath", "FindAllByUuid", "FindChild",
	"QueryChangedDiskAreas", "AcquireGenericServiceTicket", "RetrieveInternalContent", "NfcGetVmFiles",
	"QueryDateTime", "QueryOptions", "HasPrivilegeOnEntities", // the doctor's, beforehand
}

// Nothing at the source is ever changed but the power state that the user asked for.
func TestSourceIsOnlyReadAndPoweredOff(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]struct {
		power bool
		args  []string
	}{"off": {}, "running": {power: true, args: []string{"--power-off"}}, "NFC": {args: []string{"--transport", "nfc"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := small()
			cfg.VMs[0].PoweredOn = v.power
			r := newRig(t, cfg).trusting()
			allowed := reading
			args := append([]string{"--spot", "1M,4"}, v.args...)
			if v.power {
				allowed = append(slices.Clone(reading), "ShutdownGuest")
			}
			r.migrate("web01", args...).ends(0)
			stats := r.lab.Stats()
			if len(stats.SOAP) < 4 {
				t.Fatalf("the lab saw only %v", stats.SOAP)
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
