package cli

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
)

// coldAndWarm returns a lab with the VM of smallLab and with db01, a running VM for a warm migration.
func coldAndWarm() lab.Config {
	cfg := smallLab()
	cfg.VMs[0].Disks = mostlyUnchangedDisks()
	cfg.Locks = lab.LockActive // NFC reads the disks of the running VM
	cfg.VMs = append(cfg.VMs, lab.VM{Name: "db01", PoweredOn: true, Disks: []lab.Disk{{Capacity: 16 << 20, Fill: 40, Seed: 4}}})
	return cfg
}

// startNext starts the next command of the page and does not wait for its end. The returned function waits for the end
// and checks the exit code.
func (p *page) startNext(words string) (ends func(code int)) {
	p.r.t.Helper()
	cmd := p.r.shellCommand("exec " + p.nextCommand(words)) // exec, so that the command is killed if the test fails
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must(p.r.t, cmd.Start())
	return func(code int) {
		p.r.t.Helper()
		_ = cmd.Wait() // the exit code has the result
		result{p.r.t, cmd.ProcessState.ExitCode(), out.String(), ""}.wantExit(code)
	}
}

// waitUntil waits until a condition is true.
func (r *rig) waitUntil(condition string, isTrue func() bool) {
	r.t.Helper()
	deadline := time.After(5 * time.Minute)
	for every := time.Tick(50 * time.Millisecond); !isTrue(); {
		select {
		case <-every:
		case <-deadline:
			r.t.Fatalf("timeout: %s", condition)
		}
	}
}

// untilWarm waits until the warm migration of a VM waits for its cutover.
func (r *rig) untilWarm(vm string) {
	r.t.Helper()
	r.waitUntil("the run of "+vm+" waits for its cutover", func() bool {
		runs, err := journal.NewStore(r.stateDir()).Runs()
		return err == nil && slices.ContainsFunc(runs, func(run journal.Run) bool { return run.Plan.VM.Name == vm && run.Step == "wait" })
	})
}

// checkPower checks the power state of a VM at the source, and that it has no snapshots.
func (r *rig) checkPower(vm string, power inventory.Power) {
	r.t.Helper()
	if v := r.sourceVM(vm); v.Power != power || v.Snapshots > 0 {
		r.t.Errorf("VM %s is %s and has %d snapshots, want %s and 0", vm, v.Power, v.Snapshots, power)
	}
}

// sshFingerprint returns the fingerprint of the host's SSH key, as the host's console shows it.
func (r *rig) sshFingerprint() string {
	r.t.Helper()
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(r.lab.SSHHostKey("")))
	must(r.t, err)
	return ssh.FingerprintSHA256(key)
}

// checkTarget checks that the target folder contains exactly these VMs, and verifies them.
func (r *rig) checkTarget(vms ...string) {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.vmsDir(), "[^.]*"))
	must(r.t, err)
	if len(found) != len(vms) {
		r.t.Errorf("the target has %q, want %q", found, vms)
	}
	for _, vm := range vms {
		r.run("verify", filepath.Join(r.vmsDir(), vm)).wantExit(0)
	}
}

// The commands of the guide to plans work. One of the two VMs is changed to warm, as the guide suggests.
func TestManyVMsGuide(t *testing.T) {
	t.Parallel()
	cfg := coldAndWarm()
	cfg.VCenter, cfg.Limits.DatastoreRate = true, 512<<10 // until decamp advise has measured it
	r := newRig(t, cfg).withFingerprint()
	r.login = "vcenter://administrator@vsphere.local@"
	// The emulated vCenter has no VM folders.
	page := r.openPage("many-vms", "vcenter://decamp@vsphere.local@vc1", r.url(), "folder=prod", "name ~ *01")
	must(t, os.Mkdir(r.vmsDir(), 0o755))
	install := r.shellCommand(page.nextCommand("install"))
	install.Stdin = strings.NewReader(secret + "\n")
	r.runCommand(install).wantExit(0)

	page.runNext("decamp plan init")
	file := filepath.Join(r.dir, "plan.yaml")
	plan, err := os.ReadFile(file)
	must(t, err)
	edited := strings.Replace(string(plan), "# credentials: {file: vc1.password}", "credentials: {file: vc1.password}", 1)
	edited = regexp.MustCompile("- vm: db01.*\n.*").ReplaceAllString(edited, "$0\n    mode: warm\n    transport: nfc")
	must(t, os.WriteFile(file, []byte(edited), 0o600))
	r.password = "/nonexistent" // the plan names the password file

	page.runNext("decamp plan check", "decamp plan check", "decamp plan simulate")
	r.checkTarget()
	ended := page.startNext("decamp plan run")
	r.waitUntil("the plan runs", func() bool { return strings.Contains(r.run("status", "wave-1").stdout, "wave-1, running") })
	page.runNext("decamp status wave-1")
	page.runNext("decamp status wave-1/db01")
	advise := page.nextCommand("decamp advise")
	r.waitUntil("disks are read", func() bool { return r.runCommand(r.shellCommand(advise)).code == 0 })
	r.lab.SetLimits(lab.Limits{})
	page.runNext("decamp limits", "decamp pause", "decamp resume")
	r.untilWarm("db01")
	page.runNext("decamp cutover")
	ended(0)
	page.checkDone()
	r.checkTarget("web01", "db01")
}

// The commands of the guide to undoing work. Those for single migrations use one source, those for plans another one.
func TestUndoGuide(t *testing.T) {
	t.Parallel()
	t.Run("migrations", func(t *testing.T) {
		t.Parallel()
		cfg := coldAndWarm()
		cfg.VMs[0].PoweredOn = true
		cfg.Limits.DatastoreRate = slowRate
		r := newRig(t, cfg).withFingerprint()
		page := r.openPage("undo")
		must(t, os.Mkdir(r.vmsDir(), 0o755))

		warm := r.startMigration("db01", "--warm", "--transport", "nfc")
		warm.waitRounds(1)
		page.runNext("decamp runs")
		page.skip("decamp status wave-1 --all")
		page.runNext("decamp cancel")
		if status := warm.endWith(syscall.SIGCONT); status.ExitStatus() != exitCanceled {
			t.Errorf("the canceled migration ended with %v: %s", status, warm.lastOutput)
		}
		r.checkPower("db01", inventory.PoweredOn)
		r.checkTarget()
		page.skip("decamp cancel wave-1/db01")

		cold := r.startMigration("web01", "--power-off")
		r.slowDownAt(cold, 8<<20)
		cold.endWith(syscall.SIGINT)
		page.runNext("decamp rollback")
		r.checkPower("web01", inventory.PoweredOn)
		r.checkTarget()
		r.lab.SetLimits(lab.Limits{})
		r.migrate("web01", "--power-off").wantExit(0)
		r.checkTarget("web01")
		page.runNext("decamp rollback")
		r.checkPower("web01", inventory.PoweredOn)
		r.checkTarget()
		page.skip("decamp rollback wave-1/web01 --withdraw", "decamp plan run plan.yaml")
		page.runNext("decamp clean", "decamp clean")
		page.checkDone()
	})
	t.Run("plans", func(t *testing.T) {
		t.Parallel()
		cfg := coldAndWarm()
		cfg.VMs[0].PoweredOn = true
		r := newRig(t, cfg).withFingerprint()
		page := r.openPage("undo")
		must(t, os.Mkdir(r.vmsDir(), 0o755))
		r.writeFile("plan.yaml", "version: 1\nname: wave-1\nsource: {url: "+r.url()+", credentials: {file: password}}\ndefaults: {to: [dir:"+r.vmsDir()+
			"], powerOff: guest}\nvms: [{vm: web01}, {vm: db01, mode: warm, transport: nfc}]\n")
		plan := r.command("plan", "run", filepath.Join(r.dir, "plan.yaml"))
		var out bytes.Buffer
		plan.Stdout, plan.Stderr = &out, &out
		must(t, plan.Start())
		r.untilWarm("db01")
		page.skip("decamp runs")
		page.runNext("decamp status")
		page.skip("decamp cancel db01-3f9a1c")
		page.runNext("decamp cancel")
		_ = plan.Wait() // the exit code has the result
		result{t, plan.ProcessState.ExitCode(), out.String(), ""}.wantExit(130).wantOutput("1 done, 1 canceled")
		r.checkTarget("web01")
		page.skip("decamp rollback web01-3f2a1c", "decamp rollback web01-3f2a1c --withdraw")
		page.runNext("decamp rollback")
		page.startNext("decamp plan run")(130) // db01 is canceled
		page.skip("decamp clean "+r.url(), "decamp clean "+r.url()+" --forget")
		page.checkDone()
		r.checkTarget()
		r.checkPower("web01", inventory.PoweredOn)
		r.checkPower("db01", inventory.PoweredOn)
	})
}

// The commands of the guide to verification work, with a folder and with a volume that a real libvirt exports.
func TestVerifyGuide(t *testing.T) {
	t.Parallel()
	cfg := smallLab()
	cfg.SSH.Addr = loopback.Reserve(t)
	cfg.VMs[0].Disks = cfg.VMs[0].Disks[:1] // the guide exports one disk
	r := newRig(t, cfg).withFingerprint()
	daemon, pool := r.startLibvirt()
	_, port, err := net.SplitHostPort(cfg.SSH.Addr)
	must(t, err)
	page := r.openPage("verify", "SHA256:abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG", r.sshFingerprint(),
		"web01-6c61edc1332f1bf4-disk0.raw", "\"$VOLUME\"")
	page.toFlags = " --ssh-port " + port
	must(t, os.Mkdir(r.vmsDir(), 0o755))
	page.runNext("decamp migrate", "decamp verify", "decamp verify", "cd")

	must(t, os.RemoveAll(r.vmsDir()))
	must(t, os.Mkdir(r.vmsDir(), 0o755))
	r.runOnSource("migrate", r.url(), "web01", "--to", "libvirt:qemu:///system?socket="+daemon.Socket(), "--staging", r.vmsDir(), "--domain-type", "qemu").wantExit(0)
	volumes, err := filepath.Glob(filepath.Join(pool, "*.raw"))
	must(t, err)
	if len(volumes) != 1 {
		t.Fatalf("the pool has %q", volumes)
	}
	r.env = append(r.env, "VOLUME="+filepath.Base(volumes[0]))
	page.runNext("virsh vol-download", "decamp verify")
	page.checkDone()
}
