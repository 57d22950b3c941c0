package matrix

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/bench"
)

// Describe writes down this machine, and what a cell's folders lie on.
func Describe(on *bench.Conditions, c Cell) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("ask for the kernel: %w", err)
	}
	on.Kernel = unix.ByteSliceToString(u.Release[:])
	on.Cores = runtime.NumCPU()
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil { // some machines have no names for theirs
		on.CPU = modelName(text)
	}
	var storages []string
	for _, f := range c.Folders {
		s, err := storage(f)
		if err != nil {
			return err
		}
		storages = append(storages, s)
	}
	on.Storage = strings.Join(storages, ", ")
	return nil
}

// modelName is the first processor's.
func modelName(cpuinfo []byte) string {
	lines := bufio.NewScanner(bytes.NewReader(cpuinfo))
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// storage is the type of a folder's file system, and the device it is on, as mountinfo has them.
func storage(folder string) (string, error) {
	real, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return "", fmt.Errorf("look at %s: %w", folder, err)
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	return mountOf(text, real), nil
}

// mountOf finds the mount that a path is below: the deepest, and of several there the last one
// (proc_pid_mountinfo(5)).
func mountOf(mountinfo []byte, path string) (found string) {
	deepest := -1
	lines := bufio.NewScanner(bytes.NewReader(mountinfo))
	for lines.Scan() {
		head, tail, ok := strings.Cut(lines.Text(), " - ")
		before, after := strings.Fields(head), strings.Fields(tail)
		const mountPoint, fsType, device = 4, 0, 1
		if !ok || len(before) <= mountPoint || len(after) <= device {
			continue
		}
		at := unescapeMount.Replace(before[mountPoint])
		if len(at) >= deepest && below(path, at) {
			found, deepest = after[fsType]+" on "+unescapeMount.Replace(after[device]), len(at)
		}
	}
	return found
}

// unescapeMount undoes what the kernel does to blanks and the like in names.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func below(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
