package mount

import (
	"bufio"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// A mountEntry is a line of the table of mounts.
type mountEntry struct {
	dir   string // mount point
	kind  string // file system type
	minor uint32 // minor number of its device
}

// listMounts returns the mounts of the namespace of this process.
func listMounts() (all []mountEntry, err error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m, ok := parseMount(lines.Text()); ok {
			all = append(all, m)
		}
	}
	return all, lines.Err()
}

// topMount returns the file system mounted at dir itself, the uppermost if there are several.
func topMount(dir string) (top mountEntry, ok bool) {
	all, _ := listMounts() // the table is read as far as possible
	for _, m := range all {
		if m.dir == dir {
			top, ok = m, true
		}
	}
	return top, ok
}

// isMounted reports whether the namespace of this process has the FUSE file system with this minor number, at any mount
// point. It returns true if the table of mounts cannot be read.
func isMounted(minor uint32) bool {
	all, err := listMounts()
	return err != nil || slices.ContainsFunc(all, func(m mountEntry) bool { return m.minor == minor && strings.HasPrefix(m.kind, "fuse") })
}

// parseMount reads a line of mountinfo (proc_pid_mountinfo(5)):
//
//	36 35 0:98 / /mnt/esx1 rw,nosuid shared:1 - fuse.decamp esxi://root@esx1 rw,user_id=0
func parseMount(line string) (mountEntry, bool) {
	before, after, ok := strings.Cut(line, " - ")
	front, back := strings.Fields(before), strings.Fields(after)
	if !ok || len(front) < 5 || len(back) < 1 {
		return mountEntry{}, false
	}
	_, minor, _ := strings.Cut(front[2], ":")
	n, err := strconv.ParseUint(minor, 10, 32)
	if err != nil {
		return mountEntry{}, false
	}
	return mountEntry{dir: unescapeMount(front[4]), kind: back[0], minor: uint32(n)}, true
}

// unescapeMount replaces octal escapes such as \040.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mostStale limits the number of mounts at one mount point.
const mostStale = 32

// detachStale removes a file system of an earlier decamp process at dir that has no server any more.
// With Options.Replace it removes any FUSE file system, as Proxmox's importer does. A file system of
// decamp that is served is fault.Conflict. Other file systems stay, and are mounted over.
func detachStale(dir string, o Options) error {
	for range mostStale {
		top, ok := topMount(dir)
		if !ok || !strings.HasPrefix(top.kind, "fuse") {
			return nil
		}
		dead := isDead(dir)
		switch {
		case dead || o.Replace:
		case top.kind == "fuse."+o.Name:
			return fault.New(fault.Conflict, "a host is mounted there already").
				WithHint("unmount it first: umount %s", dir)
		default:
			return nil
		}
		o.Log.Info("detach a stale mount", "dir", dir, "type", top.kind)
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return fault.New(fault.Denied, "detach the stale mount: %w", err).WithHint("umount -l %s", dir)
		}
	}
	return fault.New(fault.Conflict, "the folder has more than %d mounts on top of each other", mostStale)
}

// isDead reports whether the FUSE file system at dir has no server.
func isDead(dir string) bool {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
}
