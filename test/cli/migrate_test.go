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
			r := newRig(t, smallLab()).withFingerprint()
			r.migrate("web01", "--format", format, "--spot", "4M,3").wantExit(0).
				wantOutput("is migrated and published", "virsh define", "decamp verify", "STAGE")
			folder := filepath.Join(r.vmsDir(), "web01")
			r.compareImages(folder, format)
			r.run("verify", folder).wantExit(0).wantOutput("is identical with the copied data", "sha256")
			r.runOnSource("verify", folder, "--spot", "1M,2", "--source", r.url()).wantExit(0).wantOutput("source re-read", "of 10 chunks equal")
			r.migrate("web01", "--format", format).wantExit(0).wantOutput("was migrated before")
		})
	}
}

// compareImages compares the published images with the lab's disks.
func (r *rig) compareImages(folder, format string) {
	r.t.Helper()
	for n := range 2 {
		image := filepath.Join(folder, fmt.Sprintf("web01-disk%d.%s", n, format))
		r.compareImage(image, "web01", n)
	}
}

func TestMigrateJSON(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	var out struct {
		Run, Folder, Domain string
		Facts               struct {
			Images []struct{ Final, Root string }
		}
	}
	res := r.migrate("web01", "--json").wantExit(0)
	res.decodeLast(&out)
	if out.Run == "" || out.Folder != filepath.Join(r.vmsDir(), "web01") || len(out.Facts.Images) != 2 || len(out.Facts.Images[0].Root) != 64 {
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

// The outcome contains the domain name if it differs from the VM name, and the warnings of the target.
func TestOutcomeContainsDomainNameAndWarnings(t *testing.T) {
	t.Parallel()
	cfg := smallLab()
	cfg.VMs[0].Name, cfg.VMs[0].Firmware = "web/01 ", "efi"
	r := newRig(t, cfg).withFingerprint()
	r.migrate("web/01 ").wantExit(0).wantOutput("&& virsh start web_01_\n", "efi-variables")
	var again struct{ Warnings []struct{ Code string } }
	r.migrate("web/01 ", "--json").wantExit(0).decodeLast(&again)
	if len(again.Warnings) == 0 {
		t.Error("no warnings as JSON")
	}
}

// flipBit changes one bit of a file but not its times, as faulty storage does.
func flipBit(t *testing.T, path string, off int64) {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	writeBit(t, path, off)
	must(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
}

// writeBit changes one bit of a file and its times, as a running guest does.
func writeBit(t *testing.T, path string, off int64) {
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

func TestVerifyReportsEachMissingPart(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	r.migrate("web01").wantExit(0)
	folder := filepath.Join(r.vmsDir(), "web01")
	first, second := filepath.Join(folder, "web01-disk0.raw"), filepath.Join(folder, "web01-disk1.raw")
	must(t, os.Truncate(first, 1<<20))
	must(t, os.Remove(second))
	r.run("verify", folder).wantExit(8).wantOutput(first, second, "from a backup")

	must(t, os.Remove(first+".manifest"))
	if res := r.run("verify", folder).wantExit(3).wantOutput(first+".manifest", "from a backup"); contains(res.stderr, "mkdir") {
		t.Errorf("the remedy contains mkdir: %s", res.stderr)
	}
}

func TestVerifyNamesTheFlippedBit(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	r.migrate("web01").wantExit(0)
	folder := filepath.Join(r.vmsDir(), "web01")
	must(t, os.Remove(filepath.Join(folder, "web01-disk1.raw.sha256")))
	r.run("verify", folder, "--md5").wantExit(0).wantOutput("web01-disk1.raw.sha256", "web01-disk1.raw.md5") // rewritten and created

	flipBit(t, filepath.Join(folder, "web01-disk1.raw"), 5<<20+77)
	r.run("verify", folder).wantExit(8).wantOutput("disk 2001 at 5242880", "expected", "seen", "Remedy: ")
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
	res := r.run("verify", folder, "--json").wantExit(8)
	lines := strings.Split(strings.TrimSpace(res.stdout), "\n")
	must(t, json.Unmarshal([]byte(lines[len(lines)-2]), &report))
	if report.OK || len(report.Images) != 2 || len(report.Images[1].Bad) != 1 || report.Images[1].Bad[0].Off != 5<<20 {
		t.Errorf("report %+v", report)
	}
	var e struct{ Error struct{ Kind string } }
	if res.decodeLast(&e); e.Error.Kind != "corrupt" {
		t.Errorf("last line %+v", e)
	}
}

// decamp verify does not report images that a started VM has changed as corrupt, and does not advise to copy them again.
// An image that changed without a write is corrupt and determines the exit code.
func TestVerifyOfStartedVM(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, smallLab()).withFingerprint()
			out := r.migrate("web01", "--format", format).wantExit(0).stdout
			if verify, start := strings.Index(out, "decamp verify"), strings.Index(out, "virsh start"); verify < 0 || start < verify {
				t.Errorf("verify is not before start: %s", out)
			}
			folder := filepath.Join(r.vmsDir(), "web01")
			first, second := filepath.Join(folder, "web01-disk0."+format), filepath.Join(folder, "web01-disk1."+format)
			writeBit(t, second, 5<<20+77)
			res := r.run("verify", folder).wantExit(11).wantOutput(second+" changed since it was published, as expected after a start", "Remedy: ")
			if text := strings.ToLower(res.stdout + res.stderr); contains(text, "again") || contains(text, "corrupt") || contains(text, "bad ") {
				t.Errorf("the output reports corruption: %s", text)
			}
			var report struct {
				OK     bool
				Images []struct{ File, Changed string }
			}
			res = r.run("verify", folder, "--json").wantExit(11)
			lines := strings.Split(strings.TrimSpace(res.stdout), "\n")
			must(t, json.Unmarshal([]byte(lines[len(lines)-2]), &report))
			if report.OK || format == "raw" && (len(report.Images) != 2 || report.Images[1].Changed == "" || report.Images[0].Changed != "") {
				t.Errorf("report %+v", report)
			}
			flipBit(t, first, 3<<20+5)
			r.run("verify", folder).wantExit(8).wantOutput(first, second+" changed since", "restore the image from a backup")
		})
	}
}

// decamp verify detects that QEMU has an image open for writing. The file times may not show its writes yet.
func TestVerifyOfRunningVM(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	r.migrate("web01").wantExit(0)
	folder := filepath.Join(r.vmsDir(), "web01")
	image := filepath.Join(folder, "web01-disk1.raw")
	flipBit(t, image, 5<<20+77)
	r.run("verify", folder).wantExit(8)
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	lock := func(off int64) {
		must(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Start: off, Len: 1}))
	}
	lock(100) // QEMU's lock for reading, as in a trial boot
	r.run("verify", folder).wantExit(8)
	lock(101) // QEMU's lock for writing
	r.run("verify", folder).wantExit(11).wantOutput("has it open for writing")
}

// A record of an older version does not contain the times of its images. decamp verify then uses the time of vm.json,
// which was written after the images.
func TestVerifyOfAnOlderRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	r.migrate("web01").wantExit(0)
	folder := filepath.Join(r.vmsDir(), "web01")
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
	flipBit(t, image, 5<<20+77)
	r.run("verify", folder).wantExit(8)
	writeBit(t, image, 6<<20+77)
	r.run("verify", folder).wantExit(11)
}

func TestVerifyOfOtherFolder(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab())
	r.run("verify", r.dir).wantExit(3).wantOutput("is not the folder of a migrated VM", "vm.json")
}

func TestRunningVMRequiresPowerOff(t *testing.T) {
	t.Parallel()
	cfg := smallLab()
	cfg.VMs[0].PoweredOn = true
	r := newRig(t, cfg).withFingerprint()
	r.migrate("web01").wantExit(6).wantOutput("powered on", "Remedy: ")
	if left, _ := os.ReadDir(r.vmsDir()); len(left) > 0 {
		t.Errorf("the refused migration left %v", left)
	}
	r.migrate("web01", "--power-off").wantExit(0)
	r.compareImage(filepath.Join(r.vmsDir(), "web01", "web01-disk0.raw"), "web01", 0)
}

// slowRate is the rate of the disks of slowLab, in bytes per second. A copy takes 8 seconds, in which a test acts.
const slowRate = 8 << 20

// slowBytes is the size of the disk of slowLab.
const slowBytes = 64 << 20

// slowLab returns a lab with one disk whose copy lasts long enough to be interrupted.
func slowLab() lab.Config {
	return lab.Config{
		VMs:    []lab.VM{{Name: "web01", ChangeTracking: true, Disks: []lab.Disk{{Capacity: slowBytes, Fill: 100, Seed: 3}}}},
		Limits: lab.Limits{DatastoreRate: slowRate},
	}
}

// migration is a running decamp process that migrates a VM.
type migration struct {
	*exec.Cmd
	t          *testing.T
	events     *bufio.Scanner
	lastEvent  string       // last line that waitExit has read
	stderr     bytes.Buffer // complete after the process has ended
	lastOutput string       // last line that endWith has read
}

func (r *rig) startMigration(vm string, more ...string) *migration {
	r.t.Helper()
	return r.startMigrationTo("dir:"+r.vmsDir(), vm, more...)
}

func (r *rig) startMigrationTo(to, vm string, more ...string) *migration {
	r.t.Helper()
	return r.startCommand(slices.Concat([]string{"migrate", r.url(), vm, "--to", to, "--json"}, r.extra, more)...)
}

// startCommand starts decamp with arguments of the test, which reads its events.
func (r *rig) startCommand(args ...string) *migration {
	r.t.Helper()
	u := &migration{Cmd: r.command(args...), t: r.t}
	u.Stderr = &u.stderr
	if r.stepwise {
		u.startStepwise()
		return u
	}
	out, err := u.StdoutPipe()
	must(r.t, err)
	events := newSpool()
	u.events = bufio.NewScanner(events)
	must(r.t, u.Start())
	go events.copyFrom(out)
	return u
}

// untilCopied reads events until one reports that many copied bytes of a disk.
func (u *migration) untilCopied(done int64) {
	u.t.Helper()
	for u.events.Scan() {
		var o struct{ Event journal.Event }
		must(u.t, json.Unmarshal(u.events.Bytes(), &o))
		if b := o.Event.Bytes; b != nil && b.Done >= done {
			return
		}
	}
	_ = u.Wait() // stderr is complete after it
	u.t.Fatalf("the migration ended before %d bytes were copied: %s", done, u.stderr.String())
}

// slowDownAt waits until that many bytes of a disk are copied. It then slows the copy down, so that it lasts until the
// test sets other limits.
func (r *rig) slowDownAt(u *migration, done int64) {
	u.t.Helper()
	u.untilCopied(done)
	r.lab.SetLimits(lab.Limits{DatastoreRate: slowRate / 64})
	must(u.t, r.lab.SetNFC(lab.NFC{HostRate: slowRate / 64}))
}

// endWith sends a signal, reads the remaining events and returns the wait status. The test fails if the migration ends
// before SIGKILL ends it.
func (u *migration) endWith(s syscall.Signal) syscall.WaitStatus {
	u.t.Helper()
	must(u.t, u.Process.Signal(s))
	for u.events.Scan() {
		u.lastOutput = u.events.Text()
	}
	_ = u.Wait() // the status has the result
	status := u.ProcessState.Sys().(syscall.WaitStatus)
	if s == syscall.SIGKILL && !status.Signaled() {
		u.t.Fatalf("the migration ended before it was killed: exit code %d: %s", status.ExitStatus(), u.stderr.String())
	}
	return status
}

// checkContinues runs the migration again at full speed and checks that it continues the earlier run.
func (r *rig) checkContinues(moreThan int, args ...string) {
	r.t.Helper()
	r.lab.SetLimits(lab.Limits{})
	res := r.migrate("web01", args...).wantExit(0).wantOutput("continuing run web01-", "is already verified")
	_, after, _ := strings.Cut(res.stderr, ": ")
	var proven int
	if _, err := fmt.Sscanf(after, "%d %% is already verified", &proven); err != nil || proven <= moreThan {
		r.t.Errorf("%d %% is already verified (%v), want more than %d %%: %s", proven, err, moreThan, res.stderr)
	}
	r.compareImage(filepath.Join(r.vmsDir(), "web01", "web01-disk0.raw"), "web01", 0)
	r.run("verify", filepath.Join(r.vmsDir(), "web01")).wantExit(0)
}

func TestInterruptedMigrationContinues(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"Ctrl-C": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "closed terminal": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, slowLab()).withFingerprint()
			u := r.startMigration("web01")
			r.slowDownAt(u, 16<<20)
			r.migrate("web01").wantExit(6).wantOutput("in use by process", "Remedy: ") // one process at a time
			if s := u.endWith(signal); s.ExitStatus() != 130 {
				t.Errorf("got the status %v, want exit code 130", s)
			}
			if !strings.Contains(u.lastOutput, `"kind":"canceled"`) || !strings.Contains(u.lastOutput, "same command") {
				t.Errorf("the last line does not explain how to continue: %s", u.lastOutput)
			}
			if _, err := os.Stat(filepath.Join(r.vmsDir(), "web01")); !os.IsNotExist(err) {
				t.Error("the VM is published")
			}
			if lane.Slow || signal == syscall.SIGINT {
				r.checkContinues(5)
			}
		})
	}
}

func TestKilledMigrationContinues(t *testing.T) {
	t.Parallel()
	r := newRig(t, slowLab()).withFingerprint()
	u := r.startMigration("web01")
	u.untilManifestsGrow(r, r.vmsDir())
	u.endWith(syscall.SIGKILL)
	r.checkContinues(5)
}

func TestDiscardRemovesCopies(t *testing.T) {
	t.Parallel()
	r := newRig(t, slowLab()).withFingerprint()
	u := r.startMigration("web01")
	r.slowDownAt(u, 8<<20)
	u.endWith(syscall.SIGINT)
	if res := r.migrate("web01", "--format", "qcow2").wantExit(6).wantOutput("was begun with format raw", "decamp rollback "+r.onlyRun()); contains(res.stderr, "continuing") {
		t.Errorf("the refused migration continued: %s", res.stderr)
	}
	r.migrate("web01", "--discard").wantExit(0).wantOutput("is discarded")
	if left, _ := os.ReadDir(r.vmsDir()); len(left) > 0 {
		t.Errorf("discard left %v", left)
	}
	r.migrate("web01", "--discard").wantExit(3).wantOutput("does not exist", "decamp runs")
	r.run("runs").wantExit(0).wantOutput("No runs in")
	r.lab.SetLimits(lab.Limits{})
	if res := r.migrate("web01").wantExit(0); contains(res.stderr, "continuing") {
		t.Errorf("the migration continues a discarded run: %s", res.stderr)
	}
}

func TestPasswordIsOnlyInItsFile(t *testing.T) {
	t.Parallel()
	r := newRig(t, slowLab()).withFingerprint()
	r.extra = append(r.extra, "-v", "--log-file", filepath.Join(r.dir, "log"))
	u := r.startMigration("web01")
	r.slowDownAt(u, 4<<20)
	for _, name := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", u.Process.Pid, name))
		must(t, err)
		if len(text) == 0 || contains(string(text), secret) {
			t.Errorf("/proc/PID/%s is empty or contains the password", name)
		}
	}
	u.endWith(syscall.SIGINT)
	if text := u.stderr.String(); !contains(text, "logged in") || contains(text, secret) {
		t.Errorf("the standard error does not contain the log, or contains the password: %s", text)
	}
	if seen := r.filesWith(secret); len(seen) != 1 || seen[0] != r.password {
		t.Errorf("the password is in %v, want only in %s", seen, r.password)
	}
	if seen := r.filesWith("logged in"); len(seen) != 1 {
		t.Errorf("found the log in %v, want one file", seen)
	}
}

// filesWith returns the files below the rig's folder that contain text.
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
