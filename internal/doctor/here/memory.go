package here

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/doctor"
)

// spare is what has to stay for the rest of the machine: decamp itself takes less than 300 MiB,
// and a machine without any page cache crawls.
const spare = 1 * gib

// memory compares a landing in tmpfs with what may be had: of the machine, and of the control
// group that bounds this process.
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
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		if !ok {
			continue
		}
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			if left, ok := e.left(group); ok && left < n {
				n, bound = left, "of the control group "+group
			}
			if group == "/" {
				break
			}
		}
	}
	return n, bound, nil
}

// left is what a control group (version 2) may still take. What it has in page cache it gives
// back, and is not counted.
func (e *examiner) left(group string) (int64, bool) {
	dir := path.Join("sys/fs/cgroup", group)
	most, ok := e.number(path.Join(dir, "memory.max"))
	used, okUsed := e.number(path.Join(dir, "memory.current"))
	if !ok || !okUsed {
		return 0, false
	}
	stat, _ := fs.ReadFile(e.Root, path.Join(dir, "memory.stat")) // without it, all counts
	for line := range strings.Lines(string(stat)) {
		if cache, ok := strings.CutPrefix(line, "inactive_file "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(cache), 10, 64) // 0 is on the safe side
			used -= n
		}
	}
	return max(0, most-used), true
}

// number reads a file with one; "max" is none.
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
