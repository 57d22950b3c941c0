package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/executable"
	"github.com/decamp/decamp/internal/targets/libvirt/libvirttest"
	"github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/pty"
)

// tutorialLab returns a lab with a running VM that boots with VMware hardware.
func tutorialLab(image string) lab.Config {
	return lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, PoweredOn: true, NICs: []lab.NIC{{Model: "vmxnet3"}},
		Disks: []lab.Disk{{File: image, Controller: "pvscsi"}}}}}
}

// The commands of each tutorial succeed in a shell, in the order of the page. The test replaces the host names, folders
// and run names of the page. It skips commands of programs that do not exist in the tests (kubectl, pveum).
func TestTutorials(t *testing.T) {
	t.Parallel()
	t.Run("proxmox", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, tutorialLab(guest.BootSector(t, 0))).withFingerprint()
		node, to := r.startProxmox()
		page := r.openPage("tutorials/proxmox", "proxmox:https://pve1:8006/pve1?storage=local-lvm&token=/root/pve.token&fingerprint=AB:CD:…", to)
		page.runNext("mkdir", "decamp doctor", "decamp migrate")
		if ids := node.VMIDs(); len(ids) != 1 {
			t.Errorf("guests %v after the migration", ids)
		}
		node.SwitchOff(100)
		page.runNext("decamp rollback")
		if ids := node.VMIDs(); len(ids) != 0 {
			t.Errorf("guests %v after the rollback", ids)
		}
	})
	t.Run("warm", func(t *testing.T) {
		t.Parallel()
		cfg := tutorialLab(guest.BootSector(t, 0))
		cfg.VMs[0].Name, cfg.Locks = "db01", lab.LockActive
		r := newRig(t, cfg).withFingerprint()
		page := r.openPage("tutorials/warm")
		page.runNext("mkdir", "decamp doctor")
		migration := r.startCommand(append(strings.Fields(page.nextCommand("decamp migrate"))[1:], "--json")...)
		migration.waitRounds(1)
		page.runNext("decamp runs", "decamp rehearse", "decamp cutover")
		migration.waitSuccess()
		r.checkOnlyPublished("db01")
		// The page presents decamp cancel as an alternative to decamp cutover.
		if command := page.nextCommand("decamp cancel"); command != "decamp cancel "+r.onlyRun() {
			t.Errorf("%q", command)
		}
		page.checkDone()
	})
}

// The commands of the libvirt tutorial work with a real libvirt, without KVM. Its default pool is a folder of the test.
func TestLibvirtTutorial(t *testing.T) {
	t.Parallel()
	cfg := tutorialLab(guest.BootSector(t, 0))
	r := newRig(t, cfg).withFingerprint()
	daemon, pool := r.startLibvirt()
	page := r.openPage("tutorials/libvirt", "qemu:///system?pool=default", "qemu:///system?pool=default&socket="+daemon.Socket(), "/var/lib/libvirt/images", pool)
	page.toFlags = " --domain-type qemu"
	page.runNext("decamp ls", "mkdir", "decamp doctor")
	page.runNext("decamp migrate") // --dry-run
	if domains := daemon.Virsh(t, "list", "--all", "--name"); strings.TrimSpace(domains) != "" {
		t.Errorf("domains %q after the preview", domains)
	}
	page.runNext("decamp migrate")
	if domains := page.runNext("virsh list"); !strings.Contains(domains.stdout, "web01") {
		t.Errorf("domains after the migration: %s", domains.stdout)
	}

	user := pty.New(t)
	terminal := user.Open()
	console := r.shellCommand(page.nextCommand("decamp console"))
	console.Stdin, console.Stdout, console.Stderr = terminal, terminal, terminal
	console.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	must(t, console.Start())
	must(t, terminal.Close()) // so that the end of the command ends the output
	user.Sees("Press Ctrl-] to detach.\r\n")
	user.Types("x")
	user.Sees(bootMarker)
	user.Types("\x1d") // Ctrl-]
	must(t, console.Wait())

	page.runNext("virsh destroy", "decamp rollback")
	page.checkDone()
	if domains := daemon.Virsh(t, "list", "--all", "--name"); strings.TrimSpace(domains) != "" {
		t.Errorf("domains %q after the rollback", domains)
	}
	if volumes, err := filepath.Glob(filepath.Join(pool, "*.raw")); err != nil || len(volumes) > 0 {
		t.Errorf("volumes %q after the rollback, %v", volumes, err)
	}
}

// startLibvirt starts a libvirtd with a default network and a default pool. It returns the folder of the pool.
func (r *rig) startLibvirt() (daemon *libvirttest.Daemon, pool string) {
	r.t.Helper()
	daemon, err := libvirttest.Start()
	must(r.t, err)
	r.t.Cleanup(daemon.End)
	must(r.t, daemon.Run("network"))
	pool = filepath.Join(r.dir, "images")
	must(r.t, os.Mkdir(pool, 0o755))
	daemon.Virsh(r.t, "pool-create-as", "default", "dir", "--target", pool)
	r.env = append(r.env, "LIBVIRT_DEFAULT_URI=qemu:///system?socket="+daemon.Socket())
	return daemon, pool
}

// A page is a document in docs. It has the commands that have not run yet.
type page struct {
	r        *rig
	name     string
	commands []string // shell commands
	toFlags  string   // additional flags for commands with a target
}

// openPage reads the commands of a document. It replaces the names of the page by those of the test; replaced has pairs
// of old and new text. It also stores the certificate of the source, as a first command on a terminal does.
func (r *rig) openPage(name string, replaced ...string) *page {
	r.t.Helper()
	r.runOnSource("ls", r.url()).wantExit(0)
	must(r.t, os.Remove(r.vmsDir())) // the page creates it
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name+".md"))
	must(r.t, err)
	names := append([]string{"\\\n", " ", "esxi://root@esx1", r.url(), "/srv/stage", r.vmsDir(), "/srv/vm", r.vmsDir()}, replaced...)
	p := &page{r: r, name: name}
	for line := range strings.Lines(strings.NewReplacer(names...).Replace(string(text))) {
		if command := strings.TrimSpace(line); strings.HasPrefix(line, "    ") && isRunnable(command) {
			p.commands = append(p.commands, command)
		}
	}
	return p
}

// isRunnable reports whether the tests run a command. Other commands need programs or hosts that the tests do not have.
func isRunnable(command string) bool {
	program, _, _ := strings.Cut(command, " ")
	return slices.Contains([]string{"decamp", "virsh", "mkdir", "cd", "install"}, program)
}

// runNames matches the names of runs in the pages.
var runNames = regexp.MustCompile(`\bRUN\b|\b(?:db|web)01-3f[0-9a-f]{4}\b`)

// nextCommand returns the next command of the page. The test fails if it does not begin with these words.
func (p *page) nextCommand(begins string) string {
	p.r.t.Helper()
	if len(p.commands) == 0 || !strings.HasPrefix(p.commands[0]+" ", begins+" ") {
		p.r.t.Fatalf("the next command of %s is not %s: %q", p.name, begins, p.commands)
	}
	command := p.commands[0]
	p.commands = p.commands[1:]
	if runNames.MatchString(command) {
		command = runNames.ReplaceAllString(command, p.r.onlyRun())
	}
	if strings.Contains(command, " --to ") {
		command += p.toFlags
	}
	if begins == "decamp rehearse" || strings.Contains(command, " --trial") {
		command += " --expect '" + bootMarker + "'" // the test guest has no login prompt
	}
	return command
}

// runNext runs the next commands of the page and returns the result of the last one.
func (p *page) runNext(begins ...string) (last result) {
	p.r.t.Helper()
	for _, words := range begins {
		last = p.r.runCommand(p.r.shellCommand(p.nextCommand(words))).wantExit(0)
	}
	return last
}

// skip skips the next commands of the page, which another test runs.
func (p *page) skip(commands ...string) {
	p.r.t.Helper()
	for _, command := range commands {
		if len(p.commands) == 0 || p.commands[0] != command {
			p.r.t.Fatalf("the next command of %s is not %q: %q", p.name, command, p.commands)
		}
		p.commands = p.commands[1:]
	}
}

// checkDone checks that no command of the page remains.
func (p *page) checkDone() {
	p.r.t.Helper()
	if len(p.commands) > 0 {
		p.r.t.Errorf("%s has commands that did not run: %q", p.name, p.commands)
	}
}

// shellCommand prepares a shell command. Its decamp uses the state directory of the rig.
func (r *rig) shellCommand(text string) *exec.Cmd {
	r.t.Helper()
	programs := filepath.Join(r.dir, "bin")
	must(r.t, os.MkdirAll(programs, 0o755))
	decamp := "#!/bin/sh\nexec '" + binary + "' \"$@\" --state '" + r.stateDir() + "'\n"
	executable.Write(r.t, filepath.Join(programs, "decamp"), decamp)
	cmd := exec.CommandContext(r.t.Context(), "sh", "-ec", text)
	cmd.Dir = r.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal
	cmd.Env = append(append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "DECAMP_PASSWORD_FILE="+r.password), r.env...)
	return cmd
}
