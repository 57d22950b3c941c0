package local

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/doctor"
)

// spare is the memory for the rest of the machine in bytes. decamp itself uses less
// than 300 MiB, and a machine without a page cache is slow.
const spare = 1 * gib

// checkMemory compares the size of a landing in tmpfs with the available memory, of the
// machine and of the control groups of this process.
func (e *examiner) checkMemory(context.Context) []doctor.Finding {
	if e.Tmpfs == 0 {
		return nil
	}
	f := doctor.Finding{Want: fmt.Sprintf("%.1f GiB for the landing and %d GiB for other processes", float64(e.Tmpfs)/gib, int64(spare)/gib)}
	available, bound, err := e.availableMemory()
	if err != nil {
		f.Status, f.Found, f.Remedy = doctor.Unknown, err.Error(), "free -g"
		return []doctor.Finding{f}
	}
	f.Found = fmt.Sprintf("%.1f GiB of memory are available (limit %s)", float64(available)/gib, bound)
	switch {
	case available < e.Tmpfs:
		f.Status = doctor.Failure
	case available < e.Tmpfs+spare:
		f.Status = doctor.Warning
	}
	// A smaller landing may fit.
	if fits := max(0, available-spare) / gib; f.Status != doctor.OK && fits > 0 {
		f.Remedy = fmt.Sprintf("use --landing tmpfs:%dG", fits)
	} else if f.Status != doctor.OK {
		f.Remedy = "omit --landing tmpfs; disks are then written to the target folder"
	}
	return []doctor.Finding{f}
}

// availableMemory returns the smallest of the available memory of the machine and of
// the control groups, in bytes, and a description of the limit.
func (e *examiner) availableMemory() (n int64, bound string, err error) {
	text, err := fs.ReadFile(e.Root, "proc/meminfo")
	if err != nil {
		return 0, "", err
	}
	n, bound = meminfoValue(string(text), "MemAvailable:"), "of the machine"
	if n < 0 {
		return 0, "", fmt.Errorf("/proc/meminfo has no MemAvailable")
	}
	groups, _ := fs.ReadFile(e.Root, "proc/self/cgroup") // none: no bounds
	for line := range strings.Lines(string(groups)) {
		h, group, ok := hierarchyOf(strings.TrimSpace(line))
		if !ok {
			continue
		}
		// Each enclosing group may have a lower limit.
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			if left, ok := e.leftInGroup(h, group); ok && left < n {
				n, bound = left, "of the control group "+group
			}
			if group == "/" {
				break
			}
		}
	}
	return n, bound, nil
}

// A hierarchy is a version of control groups: its root and the names of its files.
type hierarchy struct{ dir, most, used, cache string }

var (
	// control groups version 2
	unified = hierarchy{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "}
	// control groups version 1
	version1 = hierarchy{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "}
)

// hierarchyOf parses a line of /proc/self/cgroup, number:controllers:group
// (cgroups(7)). It returns false for hierarchies without the memory controller.
func hierarchyOf(line string) (h hierarchy, group string, ok bool) {
	_, rest, _ := strings.Cut(line, ":")
	controllers, group, ok := strings.Cut(rest, ":")
	switch {
	case controllers == "":
		return unified, group, ok
	case slices.Contains(strings.Split(controllers, ","), "memory"):
		return version1, group, ok
	}
	return hierarchy{}, "", false
}

// leftInGroup returns the memory that a control group may still use, in bytes. Inactive
// page cache counts as free, because the kernel reclaims it. It returns false if there
// is no limit.
func (e *examiner) leftInGroup(h hierarchy, group string) (int64, bool) {
	dir := path.Join(h.dir, group)
	most, ok := e.readNumber(path.Join(dir, h.most))
	used, okUsed := e.readNumber(path.Join(dir, h.used))
	if !ok || !okUsed {
		return 0, false
	}
	stat, _ := fs.ReadFile(e.Root, path.Join(dir, "memory.stat")) // without it, all counts
	for line := range strings.Lines(string(stat)) {
		if cache, ok := strings.CutPrefix(line, h.cache); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(cache), 10, 64) // 0 is on the safe side
			used -= n
		}
	}
	return max(0, most-used), true
}

// readNumber reads a file with a number. It returns false for "max", which means no
// limit.
func (e *examiner) readNumber(name string) (int64, bool) {
	text, err := fs.ReadFile(e.Root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// meminfoValue returns the value of a line of /proc/meminfo in bytes, or -1 if it is
// missing or invalid.
func meminfoValue(text, key string) int64 {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, key)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil || n < 0 || n > 1<<40 {
			return -1
		}
		return n << 10
	}
	return -1
}
