package nfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// storage is a file system of its own, for a test that fills it or takes it away.
type storage struct {
	*testing.T
	dir     string
	device  string // of one with a device
	fstype  string
	mounted bool
}

// needRoot skips where nothing can be mounted.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
}

// newTmpfs mounts one of so many bytes.
func newTmpfs(t *testing.T, size string) *storage {
	t.Helper()
	needRoot(t)
	s := &storage{T: t, dir: t.TempDir(), fstype: "tmpfs"}
	s.mount("size=" + size)
	return s
}

// newExt4 mounts one of so many bytes on a loop device.
func newExt4(t *testing.T, size int64) *storage {
	t.Helper()
	return newExt4In(t, t.TempDir(), size)
}

// newExt4In has its backing in a folder, which may have less room than it says.
func newExt4In(t *testing.T, folder string, size int64) *storage {
	t.Helper()
	needRoot(t)
	file := filepath.Join(folder, "backing")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, size))
	s := &storage{T: t, dir: t.TempDir(), fstype: "ext4"}
	s.tool("mkfs.ext4", "-q", "-m", "0", file)
	s.device = s.tool("losetup", "--find", "--show", file)
	t.Cleanup(func() { s.tool("losetup", "--detach", s.device) })
	s.mount("")
	return s
}

func (s *storage) tool(name string, args ...string) string {
	s.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		s.Fatalf("%s: %v: %s", name, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *storage) mount(options string) {
	s.Helper()
	device := s.device
	if device == "" {
		device = "none"
	}
	must(s.T, unix.Mount(device, s.dir, s.fstype, 0, options))
	if s.mounted = true; s.device == "" || options == "" {
		s.Cleanup(s.unmount)
	}
}

// unmount takes it away, if it is there.
func (s *storage) unmount() {
	s.Helper()
	if !s.mounted {
		return
	}
	s.mounted = false
	flags := 0
	if s.device == "" {
		flags = unix.MNT_DETACH // a loop device on it may take a moment to let go
	}
	must(s.T, unix.Unmount(s.dir, flags))
}

// resize makes a tmpfs larger or smaller.
func (s *storage) resize(size string) {
	s.Helper()
	must(s.T, unix.Mount("none", s.dir, s.fstype, unix.MS_REMOUNT, "size="+size))
}

// shutDown makes an ext4 fail with everything from now on, as when its power is cut: what
// it has not written to its device by itself, the journal included, never gets there.
func (s *storage) shutDown() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	const (
		shutdown   = 0x8004587d // EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32)
		noLogFlush = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
	)
	return unix.IoctlSetPointerInt(int(d.Fd()), shutdown, noLogFlush)
}

// remount makes an ext4 that was shut down work again: it replays its journal.
func (s *storage) remount() {
	s.Helper()
	s.unmount()
	must(s.T, unix.Mount(s.device, s.dir, s.fstype, 0, ""))
	s.mounted = true
}
