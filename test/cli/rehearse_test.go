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

// vmwareOnlyRuns is vmwareOnly with the VM running.
func vmwareOnlyRuns(t *testing.T) *rig {
	return newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, PoweredOn: true, NICs: []lab.NIC{{Model: "vmxnet3"}},
		Disks: []lab.Disk{{File: guest.Image(t, guest.NoVirtio), Controller: "pvscsi"}}}}}).trusting()
}

// quicklyUp is a host with a VM that runs, and whose copy boots without an operating system, after a delay.
func quicklyUp(t *testing.T, delay time.Duration) *rig {
	return newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 64, PoweredOn: true,
		Disks: []lab.Disk{{File: guest.BootSector(t, delay), Controller: "pvscsi"}}}}}).trusting()
}

// unbootable is a host with a VM that runs, and that nothing boots.
func unbootable(t *testing.T) *rig {
	return newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 64, PoweredOn: true, Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 50, Controller: "pvscsi"}}}}}).trusting()
}

// warmly begins a warm migration, and waits for its first round.
func (r *rig) warmly(more ...string) *under {
	r.t.Helper()
	u := r.begin("web01", append([]string{"--warm", "--transport", "nfc"}, more...)...)
	u.rounds(1)
	return u
}

// rehearsing is a decamp rehearse under way.
type rehearsing struct {
	t *testing.T
	*exec.Cmd
	out, errs bytes.Buffer
}

func (r *rig) rehearse(more ...string) *rehearsing {
	r.t.Helper()
	c := &rehearsing{t: r.t, Cmd: r.command(append([]string{"rehearse", r.onlyRun()}, more...)...)}
	c.Stdout, c.Stderr = &c.out, &c.errs
	must(r.t, c.Start())
	return c
}

func (c *rehearsing) ended() result {
	_ = c.Wait() // the code says it
	return result{c.t, c.ProcessState.ExitCode(), c.out.String(), c.errs.String()}
}

// booting waits until the VM of a rehearsal is about to boot.
func (u *under) booting() {
	u.t.Helper()
	for !strings.Contains(u.untilEvent(journal.Noted, "rehearsal").Message, "the VM boots from its images") {
	}
}

// nothingOfRehearsals checks that no QEMU runs and no file is left.
func (r *rig) nothingOfRehearsals() {
	r.t.Helper()
	scratch := filepath.Join(r.state(), "runs", r.onlyRun(), "scratch")
	if left, err := os.ReadDir(scratch); err == nil {
		r.t.Errorf("left: %v", left)
	}
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	must(r.t, err)
	for deadline := time.Now().Add(5 * time.Minute); len(all) > 0; {
		text, err := os.ReadFile(all[0])
		if err != nil || !strings.Contains(string(text), "TMPDIR="+scratch) {
			all = all[1:]
		} else if time.Now().After(deadline) {
			r.t.Fatalf("QEMU runs still: %s", all[0])
		} else {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// A warm migration's VM boots from what is copied so far, on virtio, while it runs on at the source and
// rounds go on; and its migration goes on to its end.
func TestRehearsal(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		if format == "raw" && !lane.Slow {
			continue
		}
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			r := vmwareOnlyRuns(t)
			u := r.warmly("--hardware", "virtio", "--format", format, "--interval", "3s")
			c := r.rehearse("--expect", up, "--json")
			u.booting()
			if e := u.untilEvent(journal.RehearsalDone, "rehearsal"); e.Failure != nil || !strings.Contains(e.Message, "it boots, after") {
				t.Errorf("told %+v", e)
			}
			u.rounds(1) // the migration continues
			var report testboot.Report
			must(t, json.Unmarshal([]byte(c.ended().ends(0).stdout), &report))
			log, err := os.ReadFile(report.Serial)
			if !report.Booted() || err != nil || !strings.Contains(string(log), "virtio_scsi") || !strings.Contains(report.Serial, r.onlyRun()) || report.Screen == "" {
				t.Errorf("%+v, %v: %s", report, err, log)
			}
			r.nothingOfRehearsals()
			if vm := r.vm("web01"); vm.Power != inventory.PoweredOn {
				t.Errorf("the VM is %s", vm.Power)
			}
			r.run("cutover", r.onlyRun()).ends(0)
			u.succeeds()
			r.asFound(inventory.PoweredOff)
			folder := filepath.Join(r.vms(), "web01")
			r.run("verify", folder).ends(0)
			record, err := dir.ReadRecord(folder)
			must(t, err)
			if record.Hardware != targets.Virtio || record.Converted == nil {
				t.Errorf("published with %q, %+v", record.Hardware, record.Converted)
			}
			r.run("rehearse", r.onlyRun()).ends(6).says("is done", "decamp trial")
		})
	}
}

// A rehearsal does not see the writes of later rounds. The next rehearsal sees them, and reports why the guest
// cannot boot; the migration continues.
func TestRehearsalIsOfOneMoment(t *testing.T) {
	t.Parallel()
	r := quicklyUp(t, 8*time.Second) // the guest reads its disk after the rounds
	u := r.warmly("--interval", "1s")
	c := r.rehearse("--expect", up)
	u.booting()
	size := r.vm("web01").Disks[0].Capacity
	must(t, r.lab.WriteDisk("web01", 0, make([]byte, size), 0))
	u.rounds(2)
	c.ended().ends(0).says("It booted")
	r.rehearse().ended().ends(7).says("does not boot (no-boot-device)", "No bootable device", "Remedy: ")
	r.nothingOfRehearsals()
	r.run("cutover", r.onlyRun()).ends(0)
	u.succeeds()
	r.sameAsSource(r.image(0), "web01", 0)
}

// The cutover ends a rehearsal at once, and does not wait for it.
func TestCutoverEndsARehearsal(t *testing.T) {
	t.Parallel()
	r := unbootable(t)
	loop := make([]byte, 4096) // jmp $: it shows no sign of anything
	copy(loop, "\xeb\xfe")
	copy(loop[510:], "\x55\xaa")
	must(t, r.lab.WriteDisk("web01", 0, loop, 0))
	u := r.warmly("--interval", "1h")
	c := r.rehearse("--deadline", "1h")
	u.booting()
	r.run("cutover", r.onlyRun()).ends(0)
	u.succeeds()
	c.ended().ends(130).says("the cutover ended the rehearsal")
	r.nothingOfRehearsals()
	r.sameAsSource(r.image(0), "web01", 0)
}

// Killed with a rehearsal under way, nothing of it is left, and the migration goes on; meanwhile the
// same command boots the VM by itself, from what the last round left.
func TestKilledWhileItRehearses(t *testing.T) {
	t.Parallel()
	r, hardware := quicklyUp(t, 0), "auto"
	if lane.Slow {
		r, hardware = vmwareOnlyRuns(t), "virtio"
	}
	u := r.warmly("--hardware", hardware, "--interval", "1h")
	c := r.rehearse("--expect", "what the guest never prints")
	u.booting()
	u.end(syscall.SIGKILL)
	c.ended().ends(130).says("has ended", "rehearse it again")
	r.run("rehearse", r.onlyRun(), "--expect", up).ends(0).says("rehearsal: the VM boots from its images of round 1", "It booted", "serial port: ")
	r.nothingOfRehearsals()
	u = r.begin("web01", "--warm", "--transport", "nfc", "--hardware", hardware, "--interval", "1h")
	u.untilEvent(journal.StepStarted, "wait")
	c = r.rehearse("--expect", up)
	u.booting()
	must(t, c.Process.Kill()) // nobody takes it back: it goes on, and is answered
	if e := u.untilEvent(journal.RehearsalDone, "rehearsal"); e.Failure != nil {
		t.Errorf("told %+v", e)
	}
	_ = c.ended()
	r.run("cutover", r.onlyRun()).ends(0)
	u.succeeds()
	r.nothingOfRehearsals()
	r.run("verify", filepath.Join(r.vms(), "web01")).ends(0)
}

// A guest that cannot be converted ends the run while its VM runs, with the remedy. With auto that is a warning,
// and the run continues.
func TestConversionIsRefusedBeforeTheOutage(t *testing.T) {
	t.Parallel()
	r := unbootable(t)
	for range 2 { // the same command looks again, after another round
		u := r.begin("web01", "--warm", "--transport", "nfc", "--hardware", "virtio", "--interval", "1h")
		u.rounds(1)
		said := string(u.last())
		if code := u.finished(); code != 7 || !strings.Contains(said, "The VM was not powered off") {
			t.Fatalf("exit code %d: %s", code, said)
		}
		r.asFoundBut(inventory.PoweredOn)
	}
	r.migrate("web01", "--warm", "--transport", "nfc", "--hardware", "virtio", "--discard").ends(0)
	r.asFound(inventory.PoweredOn)
	u := r.warmly("--hardware", "auto", "--interval", "1h")
	if e := u.untilEvent(journal.Warned, "inspect"); e.Warning == nil || e.Warning.Code != "not-converted" && e.Warning.Code != "no-boot-code" {
		t.Errorf("told %+v", e.Warning)
	}
	r.run("cutover", r.onlyRun()).ends(0)
	u.succeeds()
}

// asFoundBut is asFound of a run that is not given up: changes are tracked still.
func (r *rig) asFoundBut(power inventory.Power) {
	r.t.Helper()
	if vm := r.vm("web01"); vm.Snapshots > 0 || vm.Power != power {
		r.t.Errorf("the VM has %d snapshots, is %s; want none, and %s", vm.Snapshots, vm.Power, power)
	}
}

// A VM of a plan is rehearsed by the process that executes the plan.
func TestVMOfAPlanIsRehearsed(t *testing.T) {
	t.Parallel()
	r := quicklyUp(t, 0)
	path := r.write("plan.yaml", "version: 1\nname: p\nsource: {url: "+r.url()+", fingerprint: \""+r.lab.Fingerprint()+"\", credentials: {file: password}}\n"+
		"defaults: {to: [dir:"+r.vms()+"], mode: warm, transport: nfc, expect: "+up+"}\nvms: [{vm: web01}]\n")
	running := r.command("plan", "run", path)
	var said bytes.Buffer
	running.Stdout, running.Stderr = &said, &said
	must(t, running.Start())
	runs := journal.NewStore(r.state())
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if all, err := runs.Runs(); err == nil && len(all) == 1 && all[0].Step == "wait" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no round was done: %s", said.String())
		}
	}
	r.run("rehearse", "p").ends(2).says("only one VM of a plan can be rehearsed at a time")
	r.run("rehearse", "p/web01").ends(0).says("It booted", up)
	r.run("cutover", "p/web01").ends(0)
	if err := running.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	r.asFound(inventory.PoweredOff)
}
