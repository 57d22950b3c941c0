package fleet

import (
	"fmt"
	"os"
	"regexp"
	"syscall"
	"testing"
)

// nobody is the user of decamp if the test runs as root: files of root below /proc show nothing.
const nobody = 65534

// A server's memory is not dumped, and other processes of its user cannot read it: its files below /proc belong to
// root.
func TestServerIsNotDumped(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "decamp-dump-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	program, err := os.Open(binary)
	must(t, err)
	defer program.Close()
	r := &rig{t: t, dir: dir}
	cmd := r.commandIn(dir, "serve", "--plain", "--json", "--listen", "127.0.0.1:0")
	if os.Geteuid() == 0 {
		must(t, os.Chown(dir, nobody, nobody))
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{program} // its folder is closed to others
	}
	p := start(t, cmd)
	p.says(p.out, "serving")

	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.Process.Pid))
	must(t, err)
	if !regexp.MustCompile(`Max core file size +0 +0 `).Match(limits) {
		t.Errorf("limits:\n%s", limits)
	}
	for _, name := range []string{"environ", "maps", "mem", "fd"} {
		info, err := os.Stat(fmt.Sprintf("/proc/%d/%s", p.Process.Pid, name))
		must(t, err)
		if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 {
			t.Errorf("/proc/PID/%s belongs to user %d: the process may be dumped", name, owner)
		}
	}
}
