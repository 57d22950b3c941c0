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

// coldAndWarm is a lab with the VM of small and with db01, which runs and is migrated warm.
func coldAndWarm() lab.Config {
	cfg := small()
	cfg.VMs[0].Disks = manyBytes()
	cfg.Locks = lab.LockActive // NFC reads the disks of the running VM
	cfg.VMs = append(cfg.VMs, lab.VM{Name: "db01", PoweredOn: true, Disks: []lab.Disk{{Capacity: 16 << 20, Fill: 40, Seed: 4}}})
	return cfg
}

// begins starts a command of a page that runs while others do. The returned function waits for its end, with an exit
// code.
func (p *page) begins(words string) (ends func(code int)) {
	p.r.t.Helper()
	cmd := p.r.shell("exec " + p.next(words)) // which is killed if the test fails
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must(p.r.t, cmd.Start())
	return func(code int) {
		p.r.t.Helper()
		_ = cmd.Wait() // the exit code has it
		result{p.r.t, cmd.ProcessState.ExitCode(), out.String(), ""}.ends(code)
	}
}

// until waits until a condition is true.
func (r *rig) until(condition string, isTrue func() bool) {
	r.t.Helper()
	deadline := time.After(5 * time.Minute)
	for every := time.Tick(50 * time.Millisecond); !isTrue(); {
		select {
		case <-every:
		case <-deadline:
			r.t.Fatalf("it does not become true that %s", condition)
		}
	}
}

// untilWarm waits until the run of a warm VM waits for its cutover.
func (r *rig) untilWarm(vm string) {
	r.t.Helper()
	r.until("the run of "+vm+" waits for its cutover", func() bool {
		runs, err := journal.NewStore(r.state()).Runs()
		return err == nil && slices.ContainsFunc(runs, func(run journal.Run) bool { return run.Plan.VM.Name == vm && run.Step == "wait" })
	})
}

// power checks that a VM of the source is in a state, and without snapshots.
func (r *rig) power(vm string, power inventory.Power) {
	r.t.Helper()
	if v := r.vm(vm); v.Power != power || v.Snapshots > 0 {
		r.t.Errorf("VM %s is %s and has %d snapshots, want %s and none", vm, v.Power, v.Snapshots, power)
	}
}

// sshFingerprint returns the fingerprint of the host's SSH key, as the host's console shows it.
func (r *rig) sshFingerprint() string {
	r.t.Helper()
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(r.lab.SSHHostKey("")))
	must(r.t, err)
	return ssh.FingerprintSHA256(key)
}

// targetHas checks which VMs are in the folder of the target.
func (r *rig) targetHas(vms ...string) {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.vms(), "[^.]*"))
	must(r.t, err)
	if len(found) != len(vms) {
		r.t.Errorf("the target has %q, want %q", found, vms)
	}
	for _, vm := range vms {
		r.run("verify", filepath.Join(r.vms(), vm)).ends(0)
	}
}

// The guide to plans: of its two VMs one is edited to be warm, as the guide suggests.
func TestManyVMsGuide(t *testing.T) {
	t.Parallel()
	cfg := coldAndWarm()
	cfg.VCenter, cfg.Limits.DatastoreRate = true, 512<<10 // until decamp advise has measured it
	r := newRig(t, cfg).trusting()
	r.login = "vcenter://administrator@vsphere.local@"
	// The emulator has no folders of VMs.
	page := r.page("many-vms", "vcenter://decamp@vsphere.local@vc1", r.url(), "folder=prod", "name ~ *01")
	must(t, os.Mkdir(r.vms(), 0o755))
	install := r.shell(page.next("install"))
	install.Stdin = strings.NewReader(secret + "\n")
	r.finish(install).ends(0)

	page.run("decamp plan init")
	file := filepath.Join(r.dir, "plan.yaml")
	plan, err := os.ReadFile(file)
	must(t, err)
	edited := strings.Replace(string(plan), "# credentials: {file: vc1.password}", "credentials: {file: vc1.password}", 1)
	edited = regexp.MustCompile("- vm: db01.*\n.*").ReplaceAllString(edited, "$0\n    mode: warm\n    transport: nfc")
	must(t, os.WriteFile(file, []byte(edited), 0o600))
	r.password = "/nonexistent" // the plan names the file

	page.run("decamp plan check", "decamp plan check", "decamp plan simulate")
	r.targetHas()
	ended := page.begins("decamp plan run")
	r.until("the plan runs", func() bool { return strings.Contains(r.run("status", "wave-1").stdout, "wave-1, running") })
	page.run("decamp status wave-1")
	page.run("decamp status wave-1/db01")
	advise := page.next("decamp advise")
	r.until("disks are read", func() bool { return r.finish(r.shell(advise)).code == 0 })
	r.lab.SetLimits(lab.Limits{})
	page.run("decamp limits", "decamp pause", "decamp resume")
	r.untilWarm("db01")
	page.run("decamp cutover")
	ended(0)
	page.ends()
	r.targetHas("web01", "db01")
}

// The guide to undoing: the commands for single migrations run with one source, those for plans with another one.
func TestUndoGuide(t *testing.T) {
	t.Parallel()
	t.Run("migrations", func(t *testing.T) {
		t.Parallel()
		cfg := coldAndWarm()
		cfg.VMs[0].PoweredOn = true
		cfg.Limits.DatastoreRate = slowRate
		r := newRig(t, cfg).trusting()
		page := r.page("undo")
		must(t, os.Mkdir(r.vms(), 0o755))

		warm := r.begin("db01", "--warm", "--transport", "nfc")
		warm.rounds(1)
		page.run("decamp runs")
		page.skip("decamp status wave-1 --all")
		page.run("decamp cancel")
		if status := warm.end(syscall.SIGCONT); status.ExitStatus() != canceled {
			t.Errorf("the canceled migration ended with %v: %s", status, warm.ending)
		}
		r.power("db01", inventory.PoweredOn)
		r.targetHas()
		page.skip("decamp cancel wave-1/db01")

		cold := r.begin("web01", "--power-off")
		cold.until(8 << 20)
		cold.end(syscall.SIGINT)
		page.run("decamp rollback")
		r.power("web01", inventory.PoweredOn)
		r.targetHas()
		r.lab.SetLimits(lab.Limits{})
		r.migrate("web01", "--power-off").ends(0)
		r.targetHas("web01")
		page.run("decamp rollback")
		r.power("web01", inventory.PoweredOn)
		r.targetHas()
		page.skip("decamp rollback wave-1/web01 --withdraw", "decamp plan run plan.yaml")
		page.run("decamp clean", "decamp clean")
		page.ends()
	})
	t.Run("plans", func(t *testing.T) {
		t.Parallel()
		cfg := coldAndWarm()
		cfg.VMs[0].PoweredOn = true
		r := newRig(t, cfg).trusting()
		page := r.page("undo")
		must(t, os.Mkdir(r.vms(), 0o755))
		r.write("plan.yaml", "version: 1\nname: wave-1\nsource: {url: "+r.url()+", credentials: {file: password}}\ndefaults: {to: [dir:"+r.vms()+
			"], powerOff: guest}\nvms: [{vm: web01}, {vm: db01, mode: warm, transport: nfc}]\n")
		plan := r.command("plan", "run", filepath.Join(r.dir, "plan.yaml"))
		var out bytes.Buffer
		plan.Stdout, plan.Stderr = &out, &out
		must(t, plan.Start())
		r.untilWarm("db01")
		page.skip("decamp runs")
		page.run("decamp status")
		page.skip("decamp cancel db01-3f9a1c")
		page.run("decamp cancel")
		_ = plan.Wait() // the exit code has it
		result{t, plan.ProcessState.ExitCode(), out.String(), ""}.ends(130).says("1 done, 1 canceled")
		r.targetHas("web01")
		page.skip("decamp rollback web01-3f2a1c", "decamp rollback web01-3f2a1c --withdraw")
		page.run("decamp rollback")
		page.begins("decamp plan run")(130) // db01 is canceled
		page.skip("decamp clean "+r.url(), "decamp clean "+r.url()+" --forget")
		page.ends()
		r.targetHas()
		r.power("web01", inventory.PoweredOn)
		r.power("db01", inventory.PoweredOn)
	})
}

// The guide to verification: with a folder, and with a volume that a real libvirt exports.
func TestVerifyGuide(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.SSH.Addr = loopback.Reserve(t)
	cfg.VMs[0].Disks = cfg.VMs[0].Disks[:1] // the guide exports one
	r := newRig(t, cfg).trusting()
	daemon, pool := r.libvirt()
	_, port, err := net.SplitHostPort(cfg.SSH.Addr)
	must(t, err)
	page := r.page("verify", "SHA256:abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG", r.sshFingerprint(),
		"web01-6c61edc1332f1bf4-disk0.raw", "\"$VOLUME\"")
	page.toFlags = " --ssh-port " + port
	must(t, os.Mkdir(r.vms(), 0o755))
	page.run("decamp migrate", "decamp verify", "decamp verify", "cd")

	must(t, os.RemoveAll(r.vms()))
	must(t, os.Mkdir(r.vms(), 0o755))
	r.source("migrate", r.url(), "web01", "--to", "libvirt:qemu:///system?socket="+daemon.Socket(), "--staging", r.vms(), "--domain-type", "qemu").ends(0)
	volumes, err := filepath.Glob(filepath.Join(pool, "*.raw"))
	must(t, err)
	if len(volumes) != 1 {
		t.Fatalf("the pool has %q", volumes)
	}
	r.env = append(r.env, "VOLUME="+filepath.Base(volumes[0]))
	page.run("virsh vol-download", "decamp verify")
	page.ends()
}
