package shell_test

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A job's shell becomes an orphan when its parent ends. A container may have no init process
// that reaps orphans, and their pids would stay in use. So the tests reap them.
func init() {
	if unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil {
		go func() {
			for range time.Tick(pollEvery) {
				reapOrphans()
			}
		}()
	}
}

// reapOrphans waits for ended children that this process did not start. They are in other
// sessions, because each job has its session.
func reapOrphans() {
	session, err := unix.Getsid(0)
	if err != nil {
		return
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, name := range stats {
		var pid, parent, group, sid int
		var command, state string
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the process has ended
		}
		if _, err := fmt.Sscanf(string(text), "%d %s %s %d %d %d", &pid, &command, &state, &parent, &group, &sid); err == nil &&
			parent == os.Getpid() && state == "Z" && sid != session {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // another goroutine may have reaped it
		}
	}
}
