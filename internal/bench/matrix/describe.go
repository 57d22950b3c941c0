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

// Describe sets the kernel, the processor and the storage of the cell's folders.
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
		s, err := storageOf(f)
		if err != nil {
			return err
		}
		storages = append(storages, s)
	}
	on.Storage = strings.Join(storages, ", ")
	return nil
}

// modelName returns the model of the first processor, or "" if the kernel does not
// report it.
func modelName(cpuinfo []byte) string {
	lines := bufio.NewScanner(bytes.NewReader(cpuinfo))
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// storageOf returns the type and the device of a folder's file system, such as "ext4 on
// /dev/sda1".
func storageOf(folder string) (string, error) {
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

// mountOf returns the mount that contains a path: the deepest one, and the last of
// several at one place (proc_pid_mountinfo(5)).
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
		// A later mount at the same place hides the earlier one.
		if len(at) >= deepest && isBelow(path, at) {
			found, deepest = after[fsType]+" on "+unescapeMount.Replace(after[device]), len(at)
		}
	}
	return found
}

// unescapeMount replaces the kernel's octal escapes of white space and backslashes.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// isBelow reports whether path is folder or below it.
func isBelow(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
