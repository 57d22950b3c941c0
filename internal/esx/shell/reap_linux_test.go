package shell_test

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A job's shell is nobody's child once what started it has ended, and in a container there
// may be nobody to take it in: its pid would be taken for ever. So the tests do.
func init() {
	if unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil {
		go func() {
			for range time.Tick(pollEvery) {
				reapOrphans()
			}
		}()
	}
}

// reapOrphans waits for children that have ended and are not this process's own: those are
// in its session, jobs are in their own.
func reapOrphans() {
	session, err := unix.Getsid(0)
	if err != nil {
		return
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, name := range stats {
		var pid, parent, group, of int
		var command, state string
		text, err := os.ReadFile(name)
		if err != nil {
			continue // gone
		}
		if _, err := fmt.Sscanf(string(text), "%d %s %s %d %d %d", &pid, &command, &state, &parent, &group, &of); err == nil &&
			parent == os.Getpid() && state == "Z" && of != session {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // somebody else was faster
		}
	}
}
