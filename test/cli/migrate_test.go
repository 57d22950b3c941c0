package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/lane"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// decodeLine decodes the next line of r.
func decodeLine(t *testing.T, r io.Reader, v any) {
	t.Helper()
	line, err := bufio.NewReader(r).ReadBytes('\n')
	must(t, err)
	must(t, json.Unmarshal(line, v))
}

func TestMigrateAndVerify(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, small()).trusting()
			r.migrate("web01", "--format", format, "--spot", "4M,3").ends(0).
				says("is migrated and published", "virsh define", "decamp verify", "STAGE")
			folder := filepath.Join(r.vms(), "web01")
			r.matchesSource(folder, format)
			r.run("verify", folder).ends(0).says("is identical with the copied data", "sha256")
			r.source("verify", folder, "--spot", "1M,2", "--source", r.url()).ends(0).says("source re-read", "of 10 chunks equal")
			r.migrate("web01", "--format", format).ends(0).says("was migrated before")
		})
	}
}

// matchesSource compares the published images with the lab's disks.
func (r *rig) matchesSource(folder, format string) {
	r.t.Helper()
	for n := range 2 {
		image := filepath.Join(folder, fmt.Sprintf("web01-disk%d.%s", n, format))
		r.sameAsSource(image, "web01", n)
	}
}

func TestMigrateAsJSONEndsInTheOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	var out struct {
		Run, Folder, Domain string
		Facts               struct {
			Images []struct{ Final, Root string }
		}
	}
	res := r.migrate("web01", "--json").ends(0)
	res.last(&out)
	if out.Run == "" || out.Folder != filepath.Join(r.vms(), "web01") || len(out.Facts.Images) != 2 || len(out.Facts.Images[0].Root) != 64 {
		t.Errorf("outcome %+v", out)
	}
	if _, err := os.Stat(out.Domain); err != nil {
		t.Error(err)
	}
	kinds := map[journal.EventKind]bool{}
	for line := range strings.Lines(res.stdout) {
		var o struct{ Event journal.Event }
		must(t, json.Unmarshal([]byte(line), &o))
		kinds[o.Event.Kind] = true
	}
	if !kinds[journal.RunStarted] || !kinds[journal.StepDone] || !kinds[journal.RunDone] || res.stderr != "" {
		t.Errorf("events %v; stderr %q", kinds, res.stderr)
	}
}

// The last words are what the operator acts on: the domain's name where it is not the
// VM's, and what the target found to warn of.
func TestOutcomeNamesTheDomainAndItsWarnings(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.VMs[0].Name, cfg.VMs[0].Firmware = "web/01 ", "efi"
	r := newRig(t, cfg).trusting()
	r.migrate("web/01 ").ends(0).says("&& virsh start web_01_\n", "efi-variables")
	var again struct{ Warnings []struct{ Code string } }
	r.migrate("web/01 ", "--json").ends(0).last(&again)
	if len(again.Warnings) == 0 {
		t.Error("no warnings as JSON")
	}
}

// flip changes one bit of a file, and not its times: as a storage that fails does.
func flip(t *testing.T, path string, off int64) {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	write(t, path, off)
	must(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
}

// write changes one bit of a file, as a guest does.
func write(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], off)
	must(t, err)
	b[0] ^= 0x10
	_, err = f.WriteAt(b[:], off)
	must(t, err)
}

func TestVerifyNamesEachPartThatIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	r.migrate("web01").ends(0)
	folder := filepath.Join(r.vms(), "web01")
	first, second := filepath.Join(folder, "web01-disk0.raw"), filepath.Join(folder, "web01-disk1.raw")
	must(t, os.Truncate(first, 1<<20))
	must(t, os.Remove(second))
	r.run("verify", folder).ends(8).says(first, second, "from a backup")

	must(t, os.Remove(first+".manifest"))
	if res := r.run("verify", folder).ends(3).says(first+".manifest", "from a backup"); contains(res.stderr, "mkdir") {
		t.Errorf("a remedy for something else: %s", res.stderr)
	}
}

func TestVerifyNamesTheFlippedBit(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	r.migrate("web01").ends(0)
	folder := filepath.Join(r.vms(), "web01")
	must(t, os.Remove(filepath.Join(folder, "web01-disk1.raw.sha256")))
	r.run("verify", folder, "--md5").ends(0).says("web01-disk1.raw.sha256", "web01-disk1.raw.md5") // written again, and added

	flip(t, filepath.Join(folder, "web01-disk1.raw"), 5<<20+77)
	r.run("verify", folder).ends(8).says("disk 2001 at 5242880", "expected", "seen", "Remedy: ")
	var report struct {
		OK     bool
		Images []struct {
			File string
			Bad  []struct {
				Disk string
				Off  int64
			}
		}
	}
	res := r.run("verify", folder, "--json").ends(8)
	lines := strings.Split(strings.TrimSpace(res.stdout), "\n")
	must(t, json.Unmarshal([]byte(lines[len(lines)-2]), &report))
	if report.OK || len(report.Images) != 2 || len(report.Images[1].Bad) != 1 || report.Images[1].Bad[0].Off != 5<<20 {
		t.Errorf("report %+v", report)
	}
	var e struct{ Error struct{ Kind string } }
	if res.last(&e); e.Error.Kind != "corrupt" {
		t.Errorf("last line %+v", e)
	}
}

// A VM that ran has changed its images: verify does not call that corruption, and does not advise to
// copy it again. What was not written to stays corrupt, and decides the exit code.
func TestVerifyOfAVMThatWasStarted(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, small()).trusting()
			out := r.migrate("web01", "--format", format).ends(0).stdout
			if verify, start := strings.Index(out, "decamp verify"), strings.Index(out, "virsh start"); verify < 0 || start < verify {
				t.Errorf("verify is not before start: %s", out)
			}
			folder := filepath.Join(r.vms(), "web01")
			first, second := filepath.Join(folder, "web01-disk0."+format), filepath.Join(folder, "web01-disk1."+format)
			write(t, second, 5<<20+77)
			res := r.run("verify", folder).ends(11).says(second+" changed since it was published, as expected after a start", "Remedy: ")
			if text := strings.ToLower(res.stdout + res.stderr); contains(text, "again") || contains(text, "corrupt") || contains(text, "bad ") {
				t.Errorf("told %s", text)
			}
			var report struct {
				OK     bool
				Images []struct{ File, Changed string }
			}
			res = r.run("verify", folder, "--json").ends(11)
			lines := strings.Split(strings.TrimSpace(res.stdout), "\n")
			must(t, json.Unmarshal([]byte(lines[len(lines)-2]), &report))
			if report.OK || format == "raw" && (len(report.Images) != 2 || report.Images[1].Changed == "" || report.Images[0].Changed != "") {
				t.Errorf("report %+v", report)
			}
			flip(t, first, 3<<20+5)
			r.run("verify", folder).ends(8).says(first, second+" changed since", "restore the image from a backup")
		})
	}
}

// While QEMU has an image open, what it wrote may not show in the file's times yet.
func TestVerifyOfAVMThatRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	r.migrate("web01").ends(0)
	folder := filepath.Join(r.vms(), "web01")
	image := filepath.Join(folder, "web01-disk1.raw")
	flip(t, image, 5<<20+77)
	r.run("verify", folder).ends(8)
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	lock := func(off int64) {
		must(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Start: off, Len: 1}))
	}
	lock(100) // as QEMU does that only reads the image, in a trial boot
	r.run("verify", folder).ends(8)
	lock(101) // and as it does that may write to it
	r.run("verify", folder).ends(11).says("has it open for writing")
}

// A record of an older version has no times of its images: that of vm.json counts, which was written
// after them.
func TestVerifyOfAnOlderRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	r.migrate("web01").ends(0)
	folder := filepath.Join(r.vms(), "web01")
	path := filepath.Join(folder, "vm.json")
	info, err := os.Stat(path)
	must(t, err)
	text, err := os.ReadFile(path)
	must(t, err)
	var record map[string]any
	must(t, json.Unmarshal(text, &record))
	for _, img := range record["images"].([]any) {
		delete(img.(map[string]any), "modified")
	}
	text, err = json.Marshal(record)
	must(t, err)
	must(t, os.WriteFile(path, text, 0o644))
	must(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	image := filepath.Join(folder, "web01-disk1.raw")
	flip(t, image, 5<<20+77)
	r.run("verify", folder).ends(8)
	write(t, image, 6<<20+77)
	r.run("verify", folder).ends(11)
}

func TestVerifyOfSomethingElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, small())
	r.run("verify", r.dir).ends(3).says("is not the folder of a migrated VM", "vm.json")
}

func TestRunningVMIsRefusedUntilPowerOffIsAllowed(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.VMs[0].PoweredOn = true
	r := newRig(t, cfg).trusting()
	r.migrate("web01").ends(6).says("powered on", "Remedy: ")
	if left, _ := os.ReadDir(r.vms()); len(left) > 0 {
		t.Errorf("a refused VM left %v", left)
	}
	r.migrate("web01", "--power-off").ends(0)
	r.sameAsSource(filepath.Join(r.vms(), "web01", "web01-disk0.raw"), "web01", 0)
}

// slowRate is how fast the disks of slow come, in bytes per second: what a test does after some
// MiB of them has 20 seconds, also on a machine that is busy with others.
const slowRate = 8 << 20

// slowBytes is the size of the disk of slow.
const slowBytes = 64 << 20

// slow returns a lab with one disk whose copy lasts long enough to be interrupted.
func slow() lab.Config {
	return lab.Config{
		VMs:    []lab.VM{{Name: "web01", ChangeTracking: true, Disks: []lab.Disk{{Capacity: slowBytes, Fill: 100, Seed: 3}}}},
		Limits: lab.Limits{DatastoreRate: slowRate},
	}
}

// under is a migration under way in a process of its own.
type under struct {
	*exec.Cmd
	t      *testing.T
	events *bufio.Scanner
	final  string       // the last line of events that finished has read
	screen bytes.Buffer // the standard error; read it after end
	ending string       // the last line of the standard output, after end
}

func (r *rig) begin(vm string, more ...string) *under {
	r.t.Helper()
	return r.beginTo("dir:"+r.vms(), vm, more...)
}

func (r *rig) beginTo(to, vm string, more ...string) *under {
	r.t.Helper()
	return r.start(slices.Concat([]string{"migrate", r.url(), vm, "--to", to, "--json"}, r.extra, more)...)
}

// start starts a migration whose events the test reads.
func (r *rig) start(args ...string) *under {
	r.t.Helper()
	u := &under{Cmd: r.command(args...), t: r.t}
	u.Stderr = &u.screen
	if r.stepwise {
		u.startStepwise()
		return u
	}
	out, err := u.StdoutPipe()
	must(r.t, err)
	events := newSpool()
	u.events = bufio.NewScanner(events)
	must(r.t, u.Start())
	go events.fill(out)
	return u
}

// until reads events until one has the disk that far.
func (u *under) until(done int64) {
	u.t.Helper()
	for u.events.Scan() {
		var o struct{ Event journal.Event }
		must(u.t, json.Unmarshal(u.events.Bytes(), &o))
		if b := o.Event.Bytes; b != nil && b.Done >= done {
			return
		}
	}
	_ = u.Wait() // screen is complete after it
	u.t.Fatalf("the migration ended before %d bytes were copied: %s", done, u.screen.String())
}

// amid waits until the copy of a VM of slow is that far, and slows it down, so that it lasts until the test sets other
// limits.
func (r *rig) amid(u *under, done int64) {
	u.t.Helper()
	u.until(done)
	r.lab.SetLimits(lab.Limits{DatastoreRate: slowRate / 64})
	must(u.t, r.lab.SetNFC(lab.NFC{HostRate: slowRate / 64}))
}

// end sends a signal and drains what is left; it returns the wait status. A migration that ends before
// SIGKILL ends it fails the test.
func (u *under) end(s syscall.Signal) syscall.WaitStatus {
	u.t.Helper()
	must(u.t, u.Process.Signal(s))
	for u.events.Scan() {
		u.ending = u.events.Text()
	}
	_ = u.Wait() // the status says it
	status := u.ProcessState.Sys().(syscall.WaitStatus)
	if s == syscall.SIGKILL && !status.Signaled() {
		u.t.Fatalf("the migration ended before it was killed: exit code %d: %s", status.ExitStatus(), u.screen.String())
	}
	return status
}

// restarted runs the migration to its end, at full speed, and checks that it continued.
func (r *rig) restarted(moreThan int, args ...string) {
	r.t.Helper()
	r.lab.SetLimits(lab.Limits{})
	res := r.migrate("web01", args...).ends(0).says("continuing run web01-", "is already verified")
	_, after, _ := strings.Cut(res.stderr, ": ")
	var proven int
	if _, err := fmt.Sscanf(after, "%d %% is already verified", &proven); err != nil || proven <= moreThan {
		r.t.Errorf("%d %% was proven (%v), want more than %d %%: %s", proven, err, moreThan, res.stderr)
	}
	r.sameAsSource(filepath.Join(r.vms(), "web01", "web01-disk0.raw"), "web01", 0)
	r.run("verify", filepath.Join(r.vms(), "web01")).ends(0)
}

func TestInterruptedMigrationContinues(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"Ctrl-C": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "closed terminal": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, slow()).trusting()
			u := r.begin("web01")
			r.amid(u, 16<<20)
			r.migrate("web01").ends(6).says("in use by process", "Remedy: ") // one process at a time
			if s := u.end(signal); s.ExitStatus() != 130 {
				t.Errorf("ended with %v", s)
			}
			if !strings.Contains(u.ending, `"kind":"canceled"`) || !strings.Contains(u.ending, "same command") {
				t.Errorf("the last line does not tell how to continue: %s", u.ending)
			}
			if _, err := os.Stat(filepath.Join(r.vms(), "web01")); !os.IsNotExist(err) {
				t.Error("something is published")
			}
			if lane.Slow || signal == syscall.SIGINT {
				r.restarted(5)
			}
		})
	}
}

func TestKilledMigrationContinues(t *testing.T) {
	t.Parallel()
	r := newRig(t, slow()).trusting()
	u := r.begin("web01")
	u.untilSafe(r, r.vms())
	u.end(syscall.SIGKILL)
	r.restarted(5)
}

func TestDiscardRemovesWhatWasCopied(t *testing.T) {
	t.Parallel()
	r := newRig(t, slow()).trusting()
	u := r.begin("web01")
	r.amid(u, 8<<20)
	u.end(syscall.SIGINT)
	if res := r.migrate("web01", "--format", "qcow2").ends(6).says("was begun with format raw", "--discard"); contains(res.stderr, "continuing") {
		t.Errorf("it continued what it refused: %s", res.stderr)
	}
	r.migrate("web01", "--discard").ends(0).says("is discarded")
	if left, _ := os.ReadDir(r.vms()); len(left) > 0 {
		t.Errorf("discard left %v", left)
	}
	r.migrate("web01", "--discard").ends(3).says("does not exist", "decamp runs")
	r.run("runs").ends(0).says("No runs in")
	r.lab.SetLimits(lab.Limits{})
	if res := r.migrate("web01").ends(0); contains(res.stderr, "continuing") {
		t.Errorf("it continued what was discarded: %s", res.stderr)
	}
}

func TestPasswordStaysWhereItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t, slow()).trusting()
	r.extra = append(r.extra, "-v", "--log-file", filepath.Join(r.dir, "log"))
	u := r.begin("web01")
	r.amid(u, 4<<20)
	for _, name := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", u.Process.Pid, name))
		must(t, err)
		if len(text) == 0 || contains(string(text), secret) {
			t.Errorf("/proc/PID/%s: empty, or it holds the password", name)
		}
	}
	u.end(syscall.SIGINT)
	if screen := u.screen.String(); !contains(screen, "logged in") || contains(screen, secret) {
		t.Errorf("the screen lacks the log, or shows the password: %s", screen)
	}
	if seen := r.filesWith(secret); len(seen) != 1 || seen[0] != r.password {
		t.Errorf("the password is in %v", seen)
	}
	if seen := r.filesWith("logged in"); len(seen) != 1 {
		t.Errorf("the search does not find what is there: %v", seen)
	}
}

// filesWith lists the files below the rig's folder that hold text.
func (r *rig) filesWith(text string) (paths []string) {
	r.t.Helper()
	must(r.t, filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if contains(string(content), text) {
			paths = append(paths, path)
		}
		return err
	}))
	return paths
}
