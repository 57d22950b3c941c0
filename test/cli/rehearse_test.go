package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/lane"
)

// newRunningVMwareOnlyRig is like newVMwareOnlyRig, but the VM is running.
func newRunningVMwareOnlyRig(t *testing.T) *rig {
	return newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, PoweredOn: true, NICs: []lab.NIC{{Model: "vmxnet3"}},
		Disks: []lab.Disk{{File: guest.Image(t, guest.NoVirtio), Controller: "pvscsi"}}}}}).withFingerprint()
}

// newQuickBootRig returns a host with a running VM. Its copy boots without an operating system, after a delay.
func newQuickBootRig(t *testing.T, delay time.Duration) *rig {
	return newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 64, PoweredOn: true,
		Disks: []lab.Disk{{File: guest.BootSector(t, delay), Controller: "pvscsi"}}}}}).withFingerprint()
}

// newUnbootableRig returns a host with a running VM whose copy cannot boot.
func newUnbootableRig(t *testing.T) *rig {
	return newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 64, PoweredOn: true, Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 50, Controller: "pvscsi"}}}}}).withFingerprint()
}

// startWarmRound starts a warm migration and waits for its first round.
func (r *rig) startWarmRound(more ...string) *migration {
	r.t.Helper()
	u := r.startMigration("web01", append([]string{"--warm", "--transport", "nfc"}, more...)...)
	u.waitRounds(1)
	return u
}

// rehearsal is a running decamp rehearse.
type rehearsal struct {
	t *testing.T
	*exec.Cmd
	out, errs bytes.Buffer
}

func (r *rig) startRehearsal(more ...string) *rehearsal {
	r.t.Helper()
	c := &rehearsal{t: r.t, Cmd: r.command(append([]string{"rehearse", r.onlyRun()}, more...)...)}
	c.Stdout, c.Stderr = &c.out, &c.errs
	must(r.t, c.Start())
	return c
}

func (c *rehearsal) waitResult() result {
	_ = c.Wait() // the exit code has the result
	return result{c.t, c.ProcessState.ExitCode(), c.out.String(), c.errs.String()}
}

// untilRehearsalBoots waits until the VM of a rehearsal is about to boot.
func (u *migration) untilRehearsalBoots() {
	u.t.Helper()
	for !strings.Contains(u.untilEvent(journal.Noted, "rehearsal").Message, "the VM boots from its images") {
	}
}

// checkNoRehearsal checks that no QEMU of a rehearsal runs and that its scratch folder does not exist.
func (r *rig) checkNoRehearsal() {
	r.t.Helper()
	scratch := filepath.Join(r.stateDir(), "runs", r.onlyRun(), "scratch")
	if left, err := os.ReadDir(scratch); err == nil {
		r.t.Errorf("the scratch folder contains %v", left)
	}
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	must(r.t, err)
	for deadline := time.Now().Add(5 * time.Minute); len(all) > 0; {
		text, err := os.ReadFile(all[0])
		if err != nil || !strings.Contains(string(text), "TMPDIR="+scratch) {
			all = all[1:]
		} else if time.Now().After(deadline) {
			r.t.Fatalf("QEMU still runs: %s", all[0])
		} else {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// decamp rehearse boots the VM of a warm migration from the data that is copied so far, with virtio. Meanwhile the VM runs
// at the source. The migration continues with further rounds and the cutover.
func TestRehearsal(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		if format == "raw" && !lane.Slow {
			continue
		}
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			r := newRunningVMwareOnlyRig(t)
			u := r.startWarmRound("--hardware", "virtio", "--format", format, "--interval", "3s")
			c := r.startRehearsal("--expect", bootMarker, "--json")
			u.untilRehearsalBoots()
			if e := u.untilEvent(journal.RehearsalDone, "rehearsal"); e.Failure != nil || !strings.Contains(e.Message, "it boots, after") {
				t.Errorf("event %+v", e)
			}
			u.waitRounds(1) // the migration continues
			var report testboot.Report
			must(t, json.Unmarshal([]byte(c.waitResult().wantExit(0).stdout), &report))
			log, err := os.ReadFile(report.Serial)
			if !report.Booted() || err != nil || !strings.Contains(string(log), "virtio_scsi") || !strings.Contains(report.Serial, r.onlyRun()) || report.Screen == "" {
				t.Errorf("%+v, %v: %s", report, err, log)
			}
			r.checkNoRehearsal()
			if vm := r.sourceVM("web01"); vm.Power != inventory.PoweredOn {
				t.Errorf("the VM is %s", vm.Power)
			}
			r.run("cutover", r.onlyRun()).wantExit(0)
			u.waitSuccess()
			r.checkRestored(inventory.PoweredOff)
			folder := filepath.Join(r.vmsDir(), "web01")
			r.run("verify", folder).wantExit(0)
			record, err := dir.ReadRecord(folder)
			must(t, err)
			if record.Hardware != targets.Virtio || record.Converted == nil {
				t.Errorf("published with %q, %+v", record.Hardware, record.Converted)
			}
			r.run("rehearse", r.onlyRun()).wantExit(6).wantOutput("is done", "decamp trial")
		})
	}
}

// A rehearsal does not see the writes of later rounds. The next rehearsal sees them and reports why the guest does not
// boot. The migration continues.
func TestRehearsalSeesOnePointInTime(t *testing.T) {
	t.Parallel()
	r := newQuickBootRig(t, 8*time.Second) // the guest reads its disk after the rounds
	u := r.startWarmRound("--interval", "1s")
	c := r.startRehearsal("--expect", bootMarker)
	u.untilRehearsalBoots()
	size := r.sourceVM("web01").Disks[0].Capacity
	must(t, r.lab.WriteDisk("web01", 0, make([]byte, size), 0))
	u.waitRoundsSince(time.Now(), 2) // the first may have begun before
	c.waitResult().wantExit(0).wantOutput("It booted")
	r.startRehearsal().waitResult().wantExit(7).wantOutput("does not boot (no-boot-device)", "No bootable device", "Remedy: ")
	r.checkNoRehearsal()
	r.run("cutover", r.onlyRun()).wantExit(0)
	u.waitSuccess()
	r.compareImage(r.imagePath(0), "web01", 0)
}

// A cutover ends a rehearsal immediately.
func TestCutoverEndsARehearsal(t *testing.T) {
	t.Parallel()
	r := newUnbootableRig(t)
	loop := make([]byte, 4096) // jmp $: an endless loop without output
	copy(loop, "\xeb\xfe")
	copy(loop[510:], "\x55\xaa")
	must(t, r.lab.WriteDisk("web01", 0, loop, 0))
	u := r.startWarmRound("--interval", "1h")
	c := r.startRehearsal("--deadline", "1h")
	u.untilRehearsalBoots()
	r.run("cutover", r.onlyRun()).wantExit(0)
	u.waitSuccess()
	c.waitResult().wantExit(130).wantOutput("the cutover ended the rehearsal")
	r.checkNoRehearsal()
	r.compareImage(r.imagePath(0), "web01", 0)
}

// A migration that is killed during a rehearsal leaves no QEMU and no files. Without the migration, decamp rehearse boots
// the VM itself, from the images of the last round. After that the migration continues.
func TestMigrationKilledDuringRehearsal(t *testing.T) {
	t.Parallel()
	r, hardware := newQuickBootRig(t, 0), "auto"
	if lane.Slow {
		r, hardware = newRunningVMwareOnlyRig(t), "virtio"
	}
	u := r.startWarmRound("--hardware", hardware, "--interval", "1h")
	c := r.startRehearsal("--expect", "what the guest never prints")
	u.untilRehearsalBoots()
	u.endWith(syscall.SIGKILL)
	c.waitResult().wantExit(130).wantOutput("has ended", "rehearse it again")
	r.run("rehearse", r.onlyRun(), "--expect", bootMarker).wantExit(0).wantOutput("rehearsal: the VM boots from its images of round 1", "It booted", "serial port: ")
	r.checkNoRehearsal()
	u = r.startMigration("web01", "--warm", "--transport", "nfc", "--hardware", hardware, "--interval", "1h")
	u.untilEvent(journal.StepStarted, "wait")
	c = r.startRehearsal("--expect", bootMarker)
	u.untilRehearsalBoots()
	must(t, c.Process.Kill()) // the rehearsal continues without the command
	if e := u.untilEvent(journal.RehearsalDone, "rehearsal"); e.Failure != nil {
		t.Errorf("event %+v", e)
	}
	_ = c.waitResult()
	r.run("cutover", r.onlyRun()).wantExit(0)
	u.waitSuccess()
	r.checkNoRehearsal()
	r.run("verify", filepath.Join(r.vmsDir(), "web01")).wantExit(0)
}

// If a guest cannot be converted, the run ends before the outage and the VM keeps running. With --hardware auto, decamp
// only prints a warning and the run continues.
func TestConversionIsRefusedBeforeTheOutage(t *testing.T) {
	t.Parallel()
	r := newUnbootableRig(t)
	for range 2 { // the same command examines the guest again, after another round
		u := r.startMigration("web01", "--warm", "--transport", "nfc", "--hardware", "virtio", "--interval", "1h")
		u.waitRounds(1)
		output := string(u.readLast())
		if code := u.waitExit(); code != 7 || !strings.Contains(output, "The VM was not powered off") {
			t.Fatalf("exit code %d: %s", code, output)
		}
		r.checkNoSnapshots(inventory.PoweredOn)
	}
	r.migrate("web01", "--warm", "--transport", "nfc", "--hardware", "virtio", "--discard").wantExit(0)
	r.checkRestored(inventory.PoweredOn)
	u := r.startWarmRound("--hardware", "auto", "--interval", "1h")
	if e := u.untilEvent(journal.Warned, "inspect"); e.Warning == nil || e.Warning.Code != "not-converted" && e.Warning.Code != "no-boot-code" {
		t.Errorf("warning %+v", e.Warning)
	}
	r.run("cutover", r.onlyRun()).wantExit(0)
	u.waitSuccess()
}

// checkNoSnapshots is like checkRestored, but for a run that can continue: change tracking may be on.
func (r *rig) checkNoSnapshots(power inventory.Power) {
	r.t.Helper()
	if vm := r.sourceVM("web01"); vm.Snapshots > 0 || vm.Power != power {
		r.t.Errorf("the VM has %d snapshots and is %s, want 0 and %s", vm.Snapshots, vm.Power, power)
	}
}

// The process that executes a plan also executes the rehearsal of its VM.
func TestVMOfAPlanIsRehearsed(t *testing.T) {
	t.Parallel()
	r := newQuickBootRig(t, 0)
	path := r.writeFile("plan.yaml", "version: 1\nname: p\nsource: {url: "+r.url()+", fingerprint: \""+r.lab.Fingerprint()+"\", credentials: {file: password}}\n"+
		"defaults: {to: [dir:"+r.vmsDir()+"], mode: warm, transport: nfc, expect: "+bootMarker+"}\nvms: [{vm: web01}]\n")
	running := r.command("plan", "run", path)
	var output bytes.Buffer
	running.Stdout, running.Stderr = &output, &output
	must(t, running.Start())
	runs := journal.NewStore(r.stateDir())
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if all, err := runs.Runs(); err == nil && len(all) == 1 && all[0].Step == "wait" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("timeout: the VM does not wait for its cutover: %s", output.String())
		}
	}
	r.run("rehearse", "p").wantExit(2).wantOutput("only one VM of a plan can be rehearsed at a time")
	r.run("rehearse", "p/web01").wantExit(0).wantOutput("It booted", bootMarker)
	r.run("cutover", "p/web01").wantExit(0)
	if err := running.Wait(); err != nil {
		t.Fatalf("%v: %s", err, output.String())
	}
	r.checkRestored(inventory.PoweredOff)
}
