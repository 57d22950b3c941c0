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

// agentFiles are what installs the agent, by path.
var agentFiles = files{agentScriptFile: agentScript, agentUnitFile: agentUnit, agentWantFile: agentWant}

func TestGuestAgentIsToBeInstalled(t *testing.T) {
	guest := makeDisk(t, part{files: debian(t).and(files{"usr/bin/apt-get": ""}), uuid: rootUUID, size: 40, args: "-t ext4"})
	result, err := convertOn(t, Options{GuestAgent: true}, guest)
	if err != nil || !result.GuestAgent {
		t.Fatalf("an agent is %v to come, %v", result.GuestAgent, err)
	}
	root := partAt(t, guest, 1, 40)
	for path, want := range agentFiles {
		if !slices.ContainsFunc(result.Changes, func(c Change) bool { return c.Path == path && c.Reason != "" }) {
			t.Errorf("%s is not among the changes, with a reason: %v", path, result.Changes)
		}
		if got := cat(t, root, "/"+path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	again, err := convertOn(t, Options{GuestAgent: true}, guest)
	if err != nil || len(again.Changes) != 0 || !again.GuestAgent {
		t.Errorf("the second run changed %v, says %v of the agent, %v", again.Changes, again.GuestAgent, err)
	}
}

// Nothing is added to a guest that has the agent, where nobody asked, and where it would not work.
func TestGuestAgentIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		files   files
		without string // files of a name with this
		asked   Options
		note    string // "": none
	}{
		"not asked":  {files{"usr/bin/apt-get": ""}, "", Options{}, ""},
		"installed":  {files{"usr/bin/apt-get": "", "usr/sbin/qemu-ga": ""}, "", Options{GuestAgent: true}, ""},
		"no systemd": {files{"usr/bin/apt-get": ""}, "systemd", Options{GuestAgent: true}, "no systemd"},
		"ostree":     {files{"usr/bin/dnf": "", "usr/bin/rpm-ostree": ""}, "", Options{GuestAgent: true}, "does not permit changes"},
		"nixos":      {files{"etc/NIXOS": ""}, "", Options{GuestAgent: true}, "does not permit changes"},
		"no manager": {files{"usr/bin/pacman": ""}, "", Options{GuestAgent: true}, "does not have apt-get"},
	} {
		t.Run(name, func(t *testing.T) {
			all := debian(t).and(c.files)
			maps.DeleteFunc(all, func(path, _ string) bool { return c.without != "" && strings.Contains(path, c.without) })
			result, err := convertOn(t, c.asked, makeDisk(t, part{files: all, uuid: rootUUID, size: 40, args: "-t ext4"}))
			if err != nil || result.GuestAgent {
				t.Errorf("an agent is %v to come, %v", result.GuestAgent, err)
			}
			if slices.ContainsFunc(result.Changes, func(ch Change) bool { return agentFiles[ch.Path] != "" }) {
				t.Errorf("it is added all the same: %v", result.Changes)
			}
			notes := strings.Join(result.Notes, "\n")
			if !strings.Contains(notes, c.note) || strings.Contains(notes, "qemu-guest-agent") != (c.note != "") {
				t.Errorf("the notes are %q, want %q", notes, c.note)
			}
		})
	}
}

// Prepare adds it, too: virt-v2v does the rest.
func TestGuestAgentBesideVirtV2V(t *testing.T) {
	guest := makeDisk(t, part{files: debian(t).and(files{"usr/bin/apt-get": ""}), uuid: rootUUID, size: 40, args: "-t ext4"})
	result, err := convertOn(t, Options{GuestAgent: true, namesOnly: true}, guest)
	if err != nil || !result.GuestAgent {
		t.Errorf("an agent is %v to come, %v", result.GuestAgent, err)
	}
}

// systemd takes the unit and the drop-in, and has no cycle with them.
func TestAgentUnitIsOneForSystemd(t *testing.T) {
	dir := agentFiles.lay(t)
	units := filepath.Join(dir, "etc/systemd/system")
	cmd := exec.Command(tool(t, "systemd-analyze"), "verify", filepath.Join(units, "multi-user.target"), filepath.Join(dir, agentUnitFile))
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

// A sandbox is a guest's /etc and /usr in a folder, with programs that only write down how they were called.
type sandbox struct {
	t   *testing.T
	dir string
}

// sandboxed has one manager of packages, which is a script: it finds $usr and $dir.
func sandboxed(t *testing.T, manager, does string) sandbox {
	t.Helper()
	s := sandbox{t, agentFiles.lay(t)}
	for _, name := range []string{"sh", "rm", "rmdir", "cat"} {
		if err := errors.Join(os.MkdirAll(s.path("bin"), 0o755), os.Symlink(tool(t, name), s.path("bin/"+name))); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{manager: does, "systemctl": "", "sleep": ""} {
		text = "#!/bin/sh\ndir='" + s.dir + "' usr='" + s.dir + "/usr'\necho " + name + ` "$@" >>"$dir/calls"` + "\n" + text + "\n"
		executable.Write(t, s.path("bin/"+name), text)
	}
	if err := os.MkdirAll(s.path("usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("etc=/etc\n", "etc='"+s.path("etc")+"'\n", "usr=/usr\n", "usr='"+s.path("usr")+"'\n").Replace(agentScript)
	if strings.Contains(text, "=/etc\n") || strings.Contains(text, "=/usr\n") {
		t.Fatal("the script would work on this machine's own files")
	}
	if err := os.WriteFile(s.path(agentScriptFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s sandbox) path(name string) string { return filepath.Join(s.dir, name) }

// boot runs the script as the unit does.
func (s sandbox) boot() (said string, err error) {
	cmd := exec.CommandContext(s.t.Context(), s.path("bin/sh"), s.path(agentScriptFile))
	cmd.Env = []string{"PATH=" + s.path("bin")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// calls are the programs that ran.
func (s sandbox) calls() string {
	data, err := os.ReadFile(s.path("calls"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	return string(data)
}

// gone asks that none of our files is left, nor the folder that was made for one.
func (s sandbox) gone() {
	s.t.Helper()
	for _, path := range append(slices.Collect(maps.Keys(agentFiles)), filepath.Dir(agentWantFile), "etc/decamp-guest-agent.boots") {
		if _, err := os.Lstat(s.path(path)); !errors.Is(err, fs.ErrNotExist) {
			s.t.Errorf("%s is still there: %v", path, err)
		}
	}
}

const installs = `case "$*" in *install*qemu-guest-agent) : >"$usr/bin/qemu-ga" ;; esac`

func TestAgentScriptInstallsAndIsGone(t *testing.T) {
	for manager, want := range map[string]string{
		"apt-get": "install qemu-guest-agent", "dnf": "-y install", "yum": "-y install", "zypper": "--non-interactive install",
	} {
		t.Run(manager, func(t *testing.T) {
			s := sandboxed(t, manager, installs)
			said, err := s.boot()
			if err != nil || !strings.Contains(said, "is installed") {
				t.Errorf("it said %q, %v", said, err)
			}
			for _, call := range []string{want, "systemctl --no-block start qemu-guest-agent.service", "systemctl daemon-reload"} {
				if !strings.Contains(s.calls(), call) {
					t.Errorf("no %q in %s", call, s.calls())
				}
			}
			if strings.Contains(s.calls(), "sleep") {
				t.Errorf("it waited: %s", s.calls())
			}
			s.gone()
		})
	}
}

// A lock that somebody else has, or a network that comes late, ends by itself.
func TestAgentScriptTriesAgain(t *testing.T) {
	s := sandboxed(t, "dnf", `[ -e "$dir/before" ] || { : >"$dir/before"; exit 1; }`+"\n"+installs)
	if said, err := s.boot(); err != nil || strings.Count(s.calls(), "sleep 30") != 1 {
		t.Errorf("it said %q, %v: %s", said, err, s.calls())
	}
	s.gone()
}

// An agent that came by other means ends it without a package being asked for.
func TestAgentScriptFindsTheAgent(t *testing.T) {
	s := sandboxed(t, "dnf", "exit 1")
	executable.Write(t, s.path("usr/bin/qemu-ga"), "")
	if said, err := s.boot(); err != nil || strings.Contains(s.calls(), "dnf") {
		t.Errorf("it said %q, %v: %s", said, err, s.calls())
	}
	s.gone()
}

// Without a network ten boots fail, each after some tries, and the last one removes all of it.
func TestAgentScriptGivesUp(t *testing.T) {
	s := sandboxed(t, "apt-get", "exit 100")
	for boot := 1; boot <= 10; boot++ {
		said, err := s.boot()
		if err == nil {
			t.Fatalf("boot %d: it ended well: %s", boot, said)
		}
		if got := strings.Count(s.calls(), "sleep"); got != 4*boot {
			t.Errorf("boot %d: it waited %d times in all, want %d", boot, got, 4*boot)
		}
		if last := strings.Contains(said, "not tried again"); last != (boot == 10) {
			t.Errorf("boot %d: it said %q", boot, said)
		}
	}
	s.gone()
	if strings.Contains(s.calls(), "start qemu-guest-agent") {
		t.Errorf("it started what is not there: %s", s.calls())
	}
}
