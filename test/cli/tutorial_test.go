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

// tutorialLab is a lab with a running VM that boots with VMware's hardware.
func tutorialLab(image string) lab.Config {
	return lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, PoweredOn: true, NICs: []lab.NIC{{Model: "vmxnet3"}},
		Disks: []lab.Disk{{File: image, Controller: "pvscsi"}}}}}
}

// The commands of each tutorial run in a shell, in the order of the page, and succeed. Host names, folders and names of
// runs of the page are replaced by those of the test. Commands of programs that do not exist here (kubectl, pveum) do not
// run.
func TestTutorials(t *testing.T) {
	t.Parallel()
	t.Run("proxmox", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, tutorialLab(guest.BootSector(t, 0))).trusting()
		node, to := r.proxmox()
		page := r.page("tutorials/proxmox", "proxmox:https://pve1:8006/pve1?storage=local-lvm&token=/root/pve.token&fingerprint=AB:CD:…", to)
		page.run("mkdir", "decamp doctor", "decamp migrate")
		if ids := node.VMIDs(); len(ids) != 1 {
			t.Errorf("guests %v after the migration", ids)
		}
		node.SwitchOff(100)
		page.run("decamp rollback")
		if ids := node.VMIDs(); len(ids) != 0 {
			t.Errorf("guests %v after the rollback", ids)
		}
	})
	t.Run("warm", func(t *testing.T) {
		t.Parallel()
		cfg := tutorialLab(guest.BootSector(t, 0))
		cfg.VMs[0].Name, cfg.Locks = "db01", lab.LockActive
		r := newRig(t, cfg).trusting()
		page := r.page("tutorials/warm")
		page.run("mkdir", "decamp doctor")
		migration := r.start(append(strings.Fields(page.next("decamp migrate"))[1:], "--json")...)
		migration.rounds(1)
		page.run("decamp runs", "decamp rehearse", "decamp cutover")
		migration.succeeds()
		r.onlyPublished("db01")
		// The page offers cancel in place of cutover.
		if command := page.next("decamp cancel"); command != "decamp cancel "+r.onlyRun() {
			t.Errorf("%q", command)
		}
		page.ends()
	})
}

// The libvirt of the libvirt tutorial is a real one, without KVM. Its pool default is a folder of the test.
func TestLibvirtTutorial(t *testing.T) {
	t.Parallel()
	cfg := tutorialLab(guest.BootSector(t, 0))
	r := newRig(t, cfg).trusting()
	daemon, pool := r.libvirt()
	page := r.page("tutorials/libvirt", "qemu:///system?pool=default", "qemu:///system?pool=default&socket="+daemon.Socket(), "/var/lib/libvirt/images", pool)
	page.toFlags = " --domain-type qemu"
	page.run("decamp ls", "mkdir", "decamp doctor")
	page.run("decamp migrate") // --dry-run
	if domains := daemon.Virsh(t, "list", "--all", "--name"); strings.TrimSpace(domains) != "" {
		t.Errorf("domains %q after the preview", domains)
	}
	page.run("decamp migrate")
	if domains := page.run("virsh list"); !strings.Contains(domains.stdout, "web01") {
		t.Errorf("domains after the migration: %s", domains.stdout)
	}

	user := pty.New(t)
	terminal := user.Open()
	console := r.shell(page.next("decamp console"))
	console.Stdin, console.Stdout, console.Stderr = terminal, terminal, terminal
	console.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	must(t, console.Start())
	must(t, terminal.Close()) // so that the end of the command ends the output
	user.Sees("Press Ctrl-] to detach.\r\n")
	user.Types("x")
	user.Sees(up)
	user.Types("\x1d") // Ctrl-]
	must(t, console.Wait())

	page.run("virsh destroy", "decamp rollback")
	page.ends()
	if domains := daemon.Virsh(t, "list", "--all", "--name"); strings.TrimSpace(domains) != "" {
		t.Errorf("domains %q after the rollback", domains)
	}
	if volumes, err := filepath.Glob(filepath.Join(pool, "*.raw")); err != nil || len(volumes) > 0 {
		t.Errorf("volumes %q after the rollback, %v", volumes, err)
	}
}

// libvirt starts a libvirtd with a pool default, in a folder that it returns, and a network default.
func (r *rig) libvirt() (daemon *libvirttest.Daemon, pool string) {
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

// A page is a document in docs with the commands that have not run yet.
type page struct {
	r        *rig
	name     string
	commands []string // text for the shell
	toFlags  string   // flags of commands with a target, in addition to those of the page
}

// page reads the commands of a document, with names replaced by those of the test: pairs of old and new text. The
// certificate of the source is known, as after a first command on a terminal.
func (r *rig) page(name string, replaced ...string) *page {
	r.t.Helper()
	r.source("ls", r.url()).ends(0)
	must(r.t, os.Remove(r.vms())) // the page creates it
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name+".md"))
	must(r.t, err)
	names := append([]string{"\\\n", " ", "esxi://root@esx1", r.url(), "/srv/stage", r.vms(), "/srv/vm", r.vms()}, replaced...)
	p := &page{r: r, name: name}
	for line := range strings.Lines(strings.NewReplacer(names...).Replace(string(text))) {
		if command := strings.TrimSpace(line); strings.HasPrefix(line, "    ") && runs(command) {
			p.commands = append(p.commands, command)
		}
	}
	return p
}

// runs reports whether a command of a page runs in these tests. Others need programs or hosts that do not exist here.
func runs(command string) bool {
	program, _, _ := strings.Cut(command, " ")
	return slices.Contains([]string{"decamp", "virsh", "mkdir", "cd", "install"}, program)
}

// runNames matches the names of runs in the pages.
var runNames = regexp.MustCompile(`\bRUN\b|\b(?:db|web)01-3f[0-9a-f]{4}\b`)

// next returns the next command of the page, which must begin with these words.
func (p *page) next(begins string) string {
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
		command += " --expect '" + up + "'" // the test guest has no login prompt
	}
	return command
}

// run runs the next commands of the page to their ends, and returns the result of the last one.
func (p *page) run(begins ...string) (last result) {
	p.r.t.Helper()
	for _, words := range begins {
		last = p.r.finish(p.r.shell(p.next(words))).ends(0)
	}
	return last
}

// skip passes over the next commands of the page, which another test runs.
func (p *page) skip(commands ...string) {
	p.r.t.Helper()
	for _, command := range commands {
		if len(p.commands) == 0 || p.commands[0] != command {
			p.r.t.Fatalf("the next command of %s is not %q: %q", p.name, command, p.commands)
		}
		p.commands = p.commands[1:]
	}
}

// ends checks that each command of the page has run.
func (p *page) ends() {
	p.r.t.Helper()
	if len(p.commands) > 0 {
		p.r.t.Errorf("commands of %s that have not run: %q", p.name, p.commands)
	}
}

// shell prepares commands of a user, whose decamp has the state directory of the rig.
func (r *rig) shell(text string) *exec.Cmd {
	r.t.Helper()
	programs := filepath.Join(r.dir, "bin")
	must(r.t, os.MkdirAll(programs, 0o755))
	decamp := "#!/bin/sh\nexec '" + binary + "' \"$@\" --state '" + r.state() + "'\n"
	executable.Write(r.t, filepath.Join(programs, "decamp"), decamp)
	cmd := exec.CommandContext(r.t.Context(), "sh", "-ec", text)
	cmd.Dir = r.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal
	cmd.Env = append(append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "DECAMP_PASSWORD_FILE="+r.password), r.env...)
	return cmd
}
