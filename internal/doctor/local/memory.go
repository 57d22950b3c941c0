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

// spare is the memory for the rest of the machine: decamp itself uses less than 300 MiB, and a machine
// without a page cache is slow.
const spare = 1 * gib

// memory compares the size of a landing in tmpfs with the available memory: of the machine, and of the
// control group of this process.
func (e *examiner) memory(context.Context) []doctor.Finding {
	if e.Tmpfs == 0 {
		return nil
	}
	f := doctor.Finding{Want: fmt.Sprintf("%.1f GiB, and %d GiB for all else", float64(e.Tmpfs)/gib, int64(spare)/gib)}
	available, bound, err := e.available()
	if err != nil {
		f.Status, f.Seen, f.Remedy = doctor.Unknown, err.Error(), "free -g"
		return []doctor.Finding{f}
	}
	f.Seen = fmt.Sprintf("%.1f GiB of memory can be had (%s)", float64(available)/gib, bound)
	switch {
	case available < e.Tmpfs:
		f.Status = doctor.Failure
	case available < e.Tmpfs+spare:
		f.Status = doctor.Warning
	}
	if fits := max(0, available-spare) / gib; f.Status != doctor.OK && fits > 0 {
		f.Remedy = fmt.Sprintf("--landing tmpfs:%dG", fits)
	} else if f.Status != doctor.OK {
		f.Remedy = "leave --landing tmpfs out: disks land in the target's folder then"
	}
	return []doctor.Finding{f}
}

// available is the least of what the machine and the control groups have left, in bytes, and
// which one that is.
func (e *examiner) available() (n int64, bound string, err error) {
	text, err := fs.ReadFile(e.Root, "proc/meminfo")
	if err != nil {
		return 0, "", err
	}
	n, bound = kib(string(text), "MemAvailable:"), "of the machine"
	if n < 0 {
		return 0, "", fmt.Errorf("/proc/meminfo has no MemAvailable")
	}
	groups, _ := fs.ReadFile(e.Root, "proc/self/cgroup") // none: no bounds
	for line := range strings.Lines(string(groups)) {
		h, group, ok := hierarchyOf(strings.TrimSpace(line))
		if !ok {
			continue
		}
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			if left, ok := e.left(h, group); ok && left < n {
				n, bound = left, "of the control group "+group
			}
			if group == "/" {
				break
			}
		}
	}
	return n, bound, nil
}

// A hierarchy is where control groups bound memory, and how their files are named.
type hierarchy struct{ dir, most, used, cache string }

var (
	unified  = hierarchy{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "}
	version1 = hierarchy{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "}
)

// hierarchyOf reads a line of /proc/self/cgroup, number:controllers:group (cgroups(7)).
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

// left is what a control group may still take. What it has in page cache it gives back, and is
// not counted.
func (e *examiner) left(h hierarchy, group string) (int64, bool) {
	dir := path.Join(h.dir, group)
	most, ok := e.number(path.Join(dir, h.most))
	used, okUsed := e.number(path.Join(dir, h.used))
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

// number reads a file with a number; "max" means no number.
func (e *examiner) number(name string) (int64, bool) {
	text, err := fs.ReadFile(e.Root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// kib finds a line of /proc/meminfo, and returns its value in bytes; -1 if it is not there.
func kib(text, key string) int64 {
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
