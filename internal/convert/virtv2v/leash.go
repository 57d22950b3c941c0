package virtv2v

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// A leash is a process group with a leader that ends all of it when this process dies: the kernel
// informs only direct children of that. qemu-nbd, which virt-v2v 2.2 starts, would stay.
type leash struct {
	leader *exec.Cmd
	hold   *os.File // the leader reads from its other end, and comes to the end of it when we are gone
}

func newLeash() (*leash, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	l := &leash{leader: exec.Command("/bin/sh", "-c", "read -r line; kill -9 0"), hold: ours}
	l.leader.Stdin, l.leader.Env = theirs, []string{}
	l.leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := l.leader.Start(); err != nil {
		return nil, fmt.Errorf("start what ends virt-v2v with us: %w", err)
	}
	return l, nil
}

// group is the id of the process group.
func (l *leash) group() int { return l.leader.Process.Pid }

// ask requests the end of all processes of the group.
func (l *leash) ask() { _ = unix.Kill(-l.group(), unix.SIGTERM) }

// kill ends all of the group.
func (l *leash) kill() { _ = unix.Kill(-l.group(), unix.SIGKILL) }

// clear has nothing of the group be left: a QEMU would write on.
func (l *leash) clear() error {
	const limit = time.Minute
	defer l.hold.Close()
	l.kill()
	_ = l.leader.Wait() // fails because it was killed
	for end := time.Now().Add(limit); alive(l.group()); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return fault.New(fault.Internal, "what virt-v2v started does not end (process group %d)", l.group()).
				WithHint("list it: ps -o pid,stat,args --pgroup %d", l.group())
		}
		l.kill()
	}
	return nil
}

// alive reports whether a process of a group runs. Zombies do not count: in a container nothing may
// wait for them.
func alive(group int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // state, parent, group
		if len(fields) > 2 && string(fields[2]) == strconv.Itoa(group) && fields[0][0] != 'Z' && fields[0][0] != 'X' {
			return true
		}
	}
	return false
}
