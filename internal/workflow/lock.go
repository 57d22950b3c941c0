package workflow

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
	"golang.org/x/sys/unix"
)

const lockName = "lock" // file in the state directory

// lockFile locks the file at path exclusively and writes the pid of this process into it. The lock ends
// with the process; the file stays. It is taken before the state is opened, because two processes that
// migrate one new SQLite file fail at random.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = writePID(f)
	} else if errors.Is(err, unix.EWOULDBLOCK) {
		err = lockedByError(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// writePID replaces the content of f by the pid of this process.
func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	return nil
}

// lockedByError returns fault.Conflict with the process that holds the lock. Its pid may not be in the
// file yet.
func lockedByError(f *os.File) error {
	pid := "unknown"
	if n := readPID(f); n > 0 {
		pid = strconv.Itoa(n)
	}
	return fault.New(fault.Conflict, "state directory is in use by process %s", pid).
		WithHint("wait for process %s to end, or give another --state directory", pid)
}

// Holder returns the pid of the process that has the state directory open, as it wrote it; 0 if that is
// unknown.
func Holder(dir string) int {
	f, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return 0
	}
	defer f.Close()
	return readPID(f)
}

// readPID returns the pid in a lock file; 0 if it contains none.
func readPID(f *os.File) int {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

// InUse reports whether a process has the state directory open.
func InUse(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return false
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	_ = atomicfile.Unlock(f)
	return err != nil
}
