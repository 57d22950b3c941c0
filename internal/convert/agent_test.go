package convert

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab/executable"
)

// agentFiles are the files that install the guest agent, by path.
var agentFiles = files{agentScriptFile: agentScript, agentUnitFile: agentUnit, agentWantFile: agentWant}

func TestGuestAgentInstallationIsPrepared(t *testing.T) {
	guest := makeDisk(t, part{files: debianFiles(t).and(files{"usr/bin/apt-get": ""}), uuid: rootUUID, size: 40, args: "-t ext4"})
	result, err := convertOn(t, Options{GuestAgent: true}, guest)
	if err != nil || !result.GuestAgent {
		t.Fatalf("GuestAgent is %v, want true, error %v", result.GuestAgent, err)
	}
	root := partAt(t, guest, 1, 40)
	for path, want := range agentFiles {
		if !slices.ContainsFunc(result.Changes, func(c Change) bool { return c.Path == path && c.Reason != "" }) {
			t.Errorf("no change of %s with a reason: %v", path, result.Changes)
		}
		if got := catFile(t, root, "/"+path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	again, err := convertOn(t, Options{GuestAgent: true}, guest)
	if err != nil || len(again.Changes) != 0 || !again.GuestAgent {
		t.Errorf("second run: changes %v, GuestAgent %v, error %v", again.Changes, again.GuestAgent, err)
	}
}

// Nothing is added if the guest has the agent or the option is not set. The same applies if the script would not work
// in the guest.
func TestGuestAgentIsNotAdded(t *testing.T) {
	for name, c := range map[string]struct {
		files   files
		without string // removes the files whose path contains it
		options Options
		note    string // part of the expected note; empty if no note is expected
	}{
		"not set":    {files{"usr/bin/apt-get": ""}, "", Options{}, ""},
		"installed":  {files{"usr/bin/apt-get": "", "usr/sbin/qemu-ga": ""}, "", Options{GuestAgent: true}, ""},
		"no systemd": {files{"usr/bin/apt-get": ""}, "systemd", Options{GuestAgent: true}, "no systemd"},
		"ostree":     {files{"usr/bin/dnf": "", "usr/bin/rpm-ostree": ""}, "", Options{GuestAgent: true}, "does not permit changes"},
		"nixos":      {files{"etc/NIXOS": ""}, "", Options{GuestAgent: true}, "does not permit changes"},
		"no manager": {files{"usr/bin/pacman": ""}, "", Options{GuestAgent: true}, "does not have apt-get"},
	} {
		t.Run(name, func(t *testing.T) {
			all := debianFiles(t).and(c.files)
			maps.DeleteFunc(all, func(path, _ string) bool { return c.without != "" && strings.Contains(path, c.without) })
			result, err := convertOn(t, c.options, makeDisk(t, part{files: all, uuid: rootUUID, size: 40, args: "-t ext4"}))
			if err != nil || result.GuestAgent {
				t.Errorf("GuestAgent is %v, want false, error %v", result.GuestAgent, err)
			}
			if slices.ContainsFunc(result.Changes, func(ch Change) bool { return agentFiles[ch.Path] != "" }) {
				t.Errorf("the agent files are added: %v", result.Changes)
			}
			notes := strings.Join(result.Notes, "\n")
			if !strings.Contains(notes, c.note) || strings.Contains(notes, "qemu-guest-agent") != (c.note != "") {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}

// The agent is also added if virt-v2v converts the guest and only the names are changed here.
func TestGuestAgentWithVirtV2V(t *testing.T) {
	guest := makeDisk(t, part{files: debianFiles(t).and(files{"usr/bin/apt-get": ""}), uuid: rootUUID, size: 40, args: "-t ext4"})
	result, err := convertOn(t, Options{GuestAgent: true, namesOnly: true}, guest)
	if err != nil || !result.GuestAgent {
		t.Errorf("GuestAgent is %v, want true, error %v", result.GuestAgent, err)
	}
}

// systemd-analyze verify accepts the unit and its link in the target, and finds no ordering cycle.
func TestAgentUnitIsValid(t *testing.T) {
	dir := agentFiles.writeFolder(t)
	units := filepath.Join(dir, "etc/systemd/system")
	cmd := exec.Command(findTool(t, "systemd-analyze"), "verify", filepath.Join(units, "multi-user.target"), filepath.Join(dir, agentUnitFile))
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+units+":", "SYSTEMD_LOG_LEVEL=warning")
	target := "[Unit]\nDescription=Many\nRequires=basic.target\nAfter=basic.target\n"
	if err := os.WriteFile(filepath.Join(units, "multi-user.target"), []byte(target), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("decamp")) || bytes.Contains(out, []byte("cycle")) {
		t.Errorf("systemd-analyze verify: %v: %s", err, out)
	}
}

// sandbox is the /etc and /usr of a guest in a folder, with programs that only record their arguments.
type sandbox struct {
	t   *testing.T
	dir string
}

// newSandbox returns a sandbox with one package manager. Its script may use $usr and $dir.
func newSandbox(t *testing.T, manager, script string) sandbox {
	t.Helper()
	s := sandbox{t, agentFiles.writeFolder(t)}
	for _, name := range []string{"sh", "rm", "rmdir", "cat"} {
		if err := errors.Join(os.MkdirAll(s.path("bin"), 0o755), os.Symlink(findTool(t, name), s.path("bin/"+name))); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{manager: script, "systemctl": "", "sleep": ""} {
		text = "#!/bin/sh\ndir='" + s.dir + "' usr='" + s.dir + "/usr'\necho " + name + ` "$@" >>"$dir/calls"` + "\n" + text + "\n"
		executable.Write(t, s.path("bin/"+name), text)
	}
	if err := os.MkdirAll(s.path("usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("etc=/etc\n", "etc='"+s.path("etc")+"'\n", "usr=/usr\n", "usr='"+s.path("usr")+"'\n").Replace(agentScript)
	if strings.Contains(text, "=/etc\n") || strings.Contains(text, "=/usr\n") {
		t.Fatal("the script still uses /etc or /usr of this machine")
	}
	if err := os.WriteFile(s.path(agentScriptFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s sandbox) path(name string) string { return filepath.Join(s.dir, name) }

// boot runs the script like the unit.
func (s sandbox) boot() (output string, err error) {
	cmd := exec.CommandContext(s.t.Context(), s.path("bin/sh"), s.path(agentScriptFile))
	cmd.Env = []string{"PATH=" + s.path("bin")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// calls returns the programs that ran, with their arguments.
func (s sandbox) calls() string {
	data, err := os.ReadFile(s.path("calls"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	return string(data)
}

// checkRemoved requires that all files of the agent script and the folder that it created are removed.
func (s sandbox) checkRemoved() {
	s.t.Helper()
	for _, path := range append(slices.Collect(maps.Keys(agentFiles)), filepath.Dir(agentWantFile), "etc/decamp-guest-agent.boots") {
		if _, err := os.Lstat(s.path(path)); !errors.Is(err, fs.ErrNotExist) {
			s.t.Errorf("%s still exists: %v", path, err)
		}
	}
}

const installScript = `case "$*" in *install*qemu-guest-agent) : >"$usr/bin/qemu-ga" ;; esac`

func TestAgentScriptInstallsAndRemovesItself(t *testing.T) {
	for manager, want := range map[string]string{
		"apt-get": "install qemu-guest-agent", "dnf": "-y install", "yum": "-y install", "zypper": "--non-interactive install",
	} {
		t.Run(manager, func(t *testing.T) {
			s := newSandbox(t, manager, installScript)
			output, err := s.boot()
			if err != nil || !strings.Contains(output, "is installed") {
				t.Errorf("output %q, error %v", output, err)
			}
			for _, call := range []string{want, "systemctl --no-block start qemu-guest-agent.service", "systemctl daemon-reload"} {
				if !strings.Contains(s.calls(), call) {
					t.Errorf("no %q in %s", call, s.calls())
				}
			}
			if strings.Contains(s.calls(), "sleep") {
				t.Errorf("the script calls sleep: %s", s.calls())
			}
			s.checkRemoved()
		})
	}
}

// The script tries again after a failure, for example while another process holds the lock or the network is not
// up yet.
func TestAgentScriptRetriesAfterFailure(t *testing.T) {
	s := newSandbox(t, "dnf", `[ -e "$dir/before" ] || { : >"$dir/before"; exit 1; }`+"\n"+installScript)
	if output, err := s.boot(); err != nil || strings.Count(s.calls(), "sleep 30") != 1 {
		t.Errorf("output %q, error %v, calls %s", output, err, s.calls())
	}
	s.checkRemoved()
}

// If the agent is already installed, the script does not call the package manager.
func TestAgentScriptFindsTheAgent(t *testing.T) {
	s := newSandbox(t, "dnf", "exit 1")
	executable.Write(t, s.path("usr/bin/qemu-ga"), "")
	if output, err := s.boot(); err != nil || strings.Contains(s.calls(), "dnf") {
		t.Errorf("output %q, error %v, calls %s", output, err, s.calls())
	}
	s.checkRemoved()
}

// Without a network ten boots fail, each after several tries. The last one removes the files.
func TestAgentScriptGivesUp(t *testing.T) {
	s := newSandbox(t, "apt-get", "exit 100")
	for boot := 1; boot <= 10; boot++ {
		output, err := s.boot()
		if err == nil {
			t.Fatalf("boot %d: the script succeeds: %s", boot, output)
		}
		if got := strings.Count(s.calls(), "sleep"); got != 4*boot {
			t.Errorf("boot %d: %d calls of sleep in total, want %d", boot, got, 4*boot)
		}
		if last := strings.Contains(output, "not tried again"); last != (boot == 10) {
			t.Errorf("boot %d: output %q", boot, output)
		}
	}
	s.checkRemoved()
	if strings.Contains(s.calls(), "start qemu-guest-agent") {
		t.Errorf("the script starts an agent that is not installed: %s", s.calls())
	}
}
