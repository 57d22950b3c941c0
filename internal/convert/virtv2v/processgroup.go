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

// A processGroup is a process group with a leader that kills the group when this process dies. The
// kernel signals only direct children; qemu-nbd, which virt-v2v 2.2 starts, would survive.
type processGroup struct {
	leader *exec.Cmd // shell that kills the group at the end of its input
	pipe   *os.File  // write end of the leader's input; it closes when this process dies
}

// newProcessGroup starts the leader in a new process group. The caller must call close.
func newProcessGroup() (*processGroup, error) {
	readEnd, writeEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer readEnd.Close()
	g := &processGroup{leader: exec.Command("/bin/sh", "-c", "read -r line; kill -9 0"), pipe: writeEnd}
	g.leader.Stdin, g.leader.Env = readEnd, []string{}
	g.leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.leader.Start(); err != nil {
		return nil, fmt.Errorf("start the leader of the process group: %w", err)
	}
	return g, nil
}

// id returns the ID of the process group.
func (g *processGroup) id() int { return g.leader.Process.Pid }

// terminate sends SIGTERM to all processes of the group.
func (g *processGroup) terminate() { _ = unix.Kill(-g.id(), unix.SIGTERM) }

// killAll sends SIGKILL to all processes of the group.
func (g *processGroup) killAll() { _ = unix.Kill(-g.id(), unix.SIGKILL) }

// close kills the group and waits until no process is left: a QEMU would continue to write to the
// overlays.
func (g *processGroup) close() error {
	const limit = time.Minute
	defer g.pipe.Close()
	g.killAll()
	_ = g.leader.Wait() // fails because it was killed
	for end := time.Now().Add(limit); hasProcesses(g.id()); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return fault.New(fault.Internal, "processes of virt-v2v do not end (process group %d)", g.id()).
				WithHint("list it: ps -o pid,stat,args --pgroup %d", g.id())
		}
		g.killAll()
	}
	return nil
}

// hasProcesses reports whether a process of the group runs. Zombies do not count, because in a
// container possibly no process waits for them.
func hasProcesses(group int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // fails only for an invalid pattern
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		// The name of the program is in parentheses and may contain spaces.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // state, parent, group
		if len(fields) > 2 && string(fields[2]) == strconv.Itoa(group) && fields[0][0] != 'Z' && fields[0][0] != 'X' {
			return true
		}
	}
	return false
}
