package fleet

import (
	"fmt"
	"os"
	"regexp"
	"syscall"
	"testing"
)

// otherUser is the user of decamp if the test runs as root, because root owns the files below /proc of all its
// processes.
const otherUser = 65534

// A server's memory is not dumped, and other processes of its user cannot read it: its files below /proc belong to
// root.
func TestServerMemoryIsNotDumped(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "decamp-dump-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	program, err := os.Open(binary)
	must(t, err)
	defer program.Close()
	r := &testEnv{t: t, dir: dir}
	cmd := r.commandIn(dir, "serve", "--plain", "--json", "--listen", "127.0.0.1:0")
	if os.Geteuid() == 0 {
		must(t, os.Chown(dir, otherUser, otherUser))
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: otherUser, Gid: otherUser}
		cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{program} // the user cannot read its folder
	}
	p := startProcess(t, cmd)
	p.waitForOutput(p.out, "serving")

	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.Process.Pid))
	must(t, err)
	if !regexp.MustCompile(`Max core file size +0 +0 `).Match(limits) {
		t.Errorf("limits do not contain a core file size of 0:\n%s", limits)
	}
	for _, name := range []string{"environ", "maps", "mem", "fd"} {
		info, err := os.Stat(fmt.Sprintf("/proc/%d/%s", p.Process.Pid, name))
		must(t, err)
		if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 {
			t.Errorf("/proc/PID/%s belongs to user %d, want root", name, owner)
		}
	}
}
