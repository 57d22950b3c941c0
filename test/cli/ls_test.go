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
	}}).withFingerprint()
	r.runOnSource("ls", r.url()).wantExit(0).wantOutput("VMware ESXi 8.0.3", "web01", "Büro 100% + 50/50", "running!", "64 MiB")
	r.runOnSource("ls", r.url(), "-v").wantExit(0).wantOutput("Remedy: shut the VM down: its disks")
	r.runOnSource("ls", r.url(), "Büro 100% + 50/50").wantExit(0).wantOutput("efi", "Hard disk 1", "[datastore1]")

	var all struct {
		About inventory.About
		Hosts []inventory.Host
		VMs   []inventory.VM
	}
	r.runOnSource("ls", r.url(), "--json").wantExit(0).decodeLast(&all)
	if all.About.Version != "8.0.3" || len(all.Hosts) != 1 || len(all.VMs) != 2 || all.VMs[0].Name != "Büro 100% + 50/50" || all.VMs[1].Provisioned != 64<<20 {
		t.Errorf("JSON: %+v", all)
	}
	var one inventory.VM
	r.runOnSource("ls", r.url(), "web01", "--json").wantExit(0).decodeLast(&one)
	if one.Name != "web01" || len(one.Disks) != 1 {
		t.Errorf("JSON: %+v", one)
	}
}

func TestLsOfVCenter(t *testing.T) {
	t.Parallel()
	cfg := smallLab()
	cfg.VCenter = true
	r := newRig(t, cfg).withFingerprint()
	url := "vcenter://administrator@vsphere.local@" + r.lab.Addr()
	r.runOnSource("ls", url).wantExit(0).wantOutput("VMware vCenter Server", "Host esx1.lab", "Host esx2.lab", "web01")
	r.runOnSource("ls", r.url()).wantExit(2).wantOutput("Remedy: ") // the URL is that of an ESXi host
}

func TestUnknownVMSuggestsNearestName(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	r.runOnSource("ls", r.url(), "web02").wantExit(3).wantOutput(`no VM is called "web02"`, "near: web01")
	r.migrate("wbe01").wantExit(3).wantOutput("near: web01")
	var e struct {
		Error struct{ Kind, Message, Remedy string }
	}
	r.runOnSource("ls", r.url(), "web02", "--json").wantExit(3).decodeLast(&e)
	if e.Error.Kind != "not-found" || e.Error.Message == "" || e.Error.Remedy != "near: web01" {
		t.Errorf("JSON: %+v", e)
	}
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	r.password = r.writeFile("wrong", "guess\n")
	r.runOnSource("ls", r.url()).wantExit(4).wantOutput("user root", "Remedy: check the user and the password", "locks after 5 failures")
}

// Repeated commands with a wrong password, as from cron, do not lock the account.
func TestRepeatedCommandsDoNotLockTheAccount(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	right := r.password
	r.password = r.writeFile("wrong", "guess\n")
	for range 6 {
		r.runOnSource("ls", r.url()).wantExit(4)
	}
	if n := r.lab.Stats().SOAP["Login"]; n != 3 {
		t.Errorf("%d logins, want 3 of the 5 that lock", n)
	}
	r.password = right
	r.runShell(r.runOnSource("ls", r.url()).wantExit(4).wantOutput("refused 3 times").remedyCommand()).wantExit(0)
	r.runOnSource("ls", r.url()).wantExit(0)
}

func TestUnreachableSource(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab())
	must(t, r.lab.Stop())
	r.runOnSource("ls", r.url()).wantExit(5).wantOutput("127.0.0.1", "Remedy: ")
}

func TestNoPasswordWithoutTerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	cmd := r.command(append([]string{"ls", r.url()}, r.extra...)...)
	cmd.Env = os.Environ()
	r.runCommand(cmd).wantExit(2).wantOutput("no password for root@", "--password-file", "DECAMP_PASSWORD_FILE")
}

// runShell runs a command that a remedy contains, as a user does.
func (r *rig) runShell(command string) result {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "sh", "-c", command)
	cmd.Env = append(os.Environ(), "DECAMP_PASSWORD_FILE="+r.password)
	return r.runCommand(cmd)
}

func TestUnknownCertificate(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab())
	refused := r.runOnSource("ls", r.url()).wantExit(4).wantOutput("is not known", r.lab.Fingerprint())
	r.runOnSource("ls", r.url()).wantExit(4) // the refused command stored no fingerprint
	r.runShell(refused.remedyCommand()).wantExit(0).wantOutput("web01")
	r.runOnSource("ls", r.url()).wantExit(0) // the fingerprint is stored
	r.runOnSource("ls", r.url(), "--fingerprint", "00:11").wantExit(4).wantOutput("differs from the given fingerprint")
}

func TestChangedCertificate(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab())
	r.runOnSource("ls", r.url(), "--fingerprint", r.lab.Fingerprint()).wantExit(0)
	must(t, r.lab.ChangeCertificate())
	refused := r.runOnSource("ls", r.url()).wantExit(4).wantOutput("changed", "find the cause")
	r.runShell(refused.remedyCommand()).wantExit(0)
	r.runOnSource("ls", r.url()).wantExit(0)
}

func TestLsOnATerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab())
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
		t.Error("the terminal shows the password")
	}
	r.runOnSource("ls", r.url()).wantExit(0) // the fingerprint is stored
}

func TestBashCompletionScript(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab())
	script := r.run("completion", "bash").wantExit(0).stdout
	cmd := exec.CommandContext(t.Context(), "bash", "-n", r.writeFile("completion.bash", script))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("bash -n: %v: %s", err, out)
	}
}
