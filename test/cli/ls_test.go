package cli

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/pty"
)

func TestLs(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{
		{Name: "web01", Disks: []lab.Disk{{Capacity: 64 << 20, Fill: 10, Seed: 1}}},
		{Name: "Büro 100% + 50/50", Firmware: "efi", PoweredOn: true, Disks: []lab.Disk{{Capacity: 64 << 20}}},
	}}).trusting()
	r.source("ls", r.url()).ends(0).says("VMware ESXi 8.0.3", "web01", "Büro 100% + 50/50", "running!", "64 MiB")
	r.source("ls", r.url(), "-v").ends(0).says("Remedy: shut the VM down: its disks")
	r.source("ls", r.url(), "Büro 100% + 50/50").ends(0).says("efi", "Hard disk 1", "[datastore1]")

	var all struct {
		About inventory.About
		Hosts []inventory.Host
		VMs   []inventory.VM
	}
	r.source("ls", r.url(), "--json").ends(0).last(&all)
	if all.About.Version != "8.0.3" || len(all.Hosts) != 1 || len(all.VMs) != 2 || all.VMs[0].Name != "Büro 100% + 50/50" || all.VMs[1].Provisioned != 64<<20 {
		t.Errorf("JSON says %+v", all)
	}
	var one inventory.VM
	r.source("ls", r.url(), "web01", "--json").ends(0).last(&one)
	if one.Name != "web01" || len(one.Disks) != 1 {
		t.Errorf("JSON says %+v", one)
	}
}

func TestLsOfAVCenter(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.VCenter = true
	r := newRig(t, cfg).trusting()
	url := "vcenter://administrator@vsphere.local@" + r.lab.Addr()
	r.source("ls", url).ends(0).says("VMware vCenter Server", "Host esx1.lab", "Host esx2.lab", "web01")
	r.source("ls", r.url()).ends(2).says("Remedy: ") // a vCenter is no ESXi
}

func TestUnknownVMNamesTheNearest(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	r.source("ls", r.url(), "web02").ends(3).says(`no VM is called "web02"`, "near: web01")
	r.migrate("wbe01").ends(3).says("near: web01")
	var e struct {
		Error struct{ Kind, Message, Remedy string }
	}
	r.source("ls", r.url(), "web02", "--json").ends(3).last(&e)
	if e.Error.Kind != "not-found" || e.Error.Message == "" || e.Error.Remedy != "near: web01" {
		t.Errorf("JSON says %+v", e)
	}
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	r.password = r.write("wrong", "guess\n")
	r.source("ls", r.url()).ends(4).says("user root", "Remedy: check the user and the password", "locks after 5 failures")
}

// A job that cron repeats with a wrong password must not lock the account.
func TestRepeatedCommandsDoNotLockTheAccount(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	right := r.password
	r.password = r.write("wrong", "guess\n")
	for range 6 {
		r.source("ls", r.url()).ends(4)
	}
	if n := r.lab.Stats().SOAP["Login"]; n != 3 {
		t.Errorf("%d logins, want 3 of the 5 that lock", n)
	}
	r.password = right
	r.paste(r.source("ls", r.url()).ends(4).says("refused 3 times").remedy()).ends(0)
	r.source("ls", r.url()).ends(0)
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, small())
	must(t, r.lab.Stop())
	r.source("ls", r.url()).ends(5).says("127.0.0.1", "Remedy: ")
}

func TestNoPasswordAndNobodyToAsk(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	cmd := r.command(append([]string{"ls", r.url()}, r.extra...)...)
	cmd.Env = os.Environ()
	r.finish(cmd).ends(2).says("no password for root@", "--password-file", "DECAMP_PASSWORD_FILE")
}

// A remedy is a command to paste: the tests paste it.
func (r *rig) paste(command string) result {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "sh", "-c", command)
	cmd.Env = append(os.Environ(), "DECAMP_PASSWORD_FILE="+r.password)
	return r.finish(cmd)
}

func TestUnknownCertificate(t *testing.T) {
	t.Parallel()
	r := newRig(t, small())
	refused := r.source("ls", r.url()).ends(4).says("is not known", r.lab.Fingerprint())
	r.source("ls", r.url()).ends(4) // refusing remembers nothing
	r.paste(refused.remedy()).ends(0).says("web01")
	r.source("ls", r.url()).ends(0) // it is remembered
	r.source("ls", r.url(), "--fingerprint", "00:11").ends(4).says("differs from the given fingerprint")
}

func TestChangedCertificate(t *testing.T) {
	t.Parallel()
	r := newRig(t, small())
	r.source("ls", r.url(), "--fingerprint", r.lab.Fingerprint()).ends(0)
	must(t, r.lab.ChangeCertificate())
	refused := r.source("ls", r.url()).ends(4).says("changed", "find the cause")
	r.paste(refused.remedy()).ends(0)
	r.source("ls", r.url()).ends(0)
}

func TestPersonAtATerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t, small())
	p := pty.New(t)
	cmd := r.command("ls", r.url())
	cmd.Env = os.Environ()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Open(), p.Open(), p.Open()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	must(t, cmd.Start())
	p.Sees("Type yes to continue: ")
	p.Types("yes\n")
	p.Sees("Password for root@" + r.lab.Addr() + ": ")
	p.Types(secret + "\n")
	p.Sees("web01")
	must(t, cmd.Wait())
	if contains(p.Seen(), secret) {
		t.Error("the password was echoed")
	}
	r.source("ls", r.url()).ends(0) // the yes is remembered
}

func TestCompletionScriptIsOneForBash(t *testing.T) {
	t.Parallel()
	r := newRig(t, small())
	script := r.run("completion", "bash").ends(0).stdout
	cmd := exec.CommandContext(t.Context(), "bash", "-n", r.write("completion.bash", script))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("bash -n: %v: %s", err, out)
	}
}
