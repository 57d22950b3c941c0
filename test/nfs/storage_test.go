package nfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// testFS is a file system for a test that fills or unmounts it.
type testFS struct {
	*testing.T
	dir     string
	device  string // loop device; empty for a tmpfs
	fstype  string
	mounted bool
}

// requireRoot skips the test unless it runs as root, because mounting needs root.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
}

// newTmpfs mounts a tmpfs of a size.
func newTmpfs(t *testing.T, size string) *testFS {
	t.Helper()
	requireRoot(t)
	s := &testFS{T: t, dir: t.TempDir(), fstype: "tmpfs"}
	s.mount("size=" + size)
	return s
}

// newExt4 mounts an ext4 of size bytes on a loop device.
func newExt4(t *testing.T, size int64) *testFS {
	t.Helper()
	return newExt4In(t, t.TempDir(), size)
}

// newExt4In mounts an ext4 whose backing file is in a folder, which may have less room than size.
func newExt4In(t *testing.T, folder string, size int64) *testFS {
	t.Helper()
	requireRoot(t)
	file := filepath.Join(folder, "backing")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, size))
	s := &testFS{T: t, dir: t.TempDir(), fstype: "ext4"}
	s.runTool("mkfs.ext4", "-q", "-m", "0", file)
	s.device = s.runTool("losetup", "--find", "--show", file)
	t.Cleanup(func() { s.runTool("losetup", "--detach", s.device) })
	s.mount("")
	return s
}

func (s *testFS) runTool(name string, args ...string) string {
	s.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		s.Fatalf("%s: %v: %s", name, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *testFS) mount(options string) {
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

// unmount unmounts the file system if it is mounted.
func (s *testFS) unmount() {
	s.Helper()
	if !s.mounted {
		return
	}
	s.mounted = false
	flags := 0
	if s.device == "" {
		flags = unix.MNT_DETACH // a loop device may still use the tmpfs for a moment
	}
	must(s.T, unix.Unmount(s.dir, flags))
}

// resize changes the size of a tmpfs.
func (s *testFS) resize(size string) {
	s.Helper()
	must(s.T, unix.Mount("none", s.dir, s.fstype, unix.MS_REMOUNT, "size="+size))
}

// shutDown makes every operation of an ext4 fail from now on, as after a power cut: data and journal
// records that are not on its device are lost.
func (s *testFS) shutDown() error {
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

// remount mounts an ext4 again after shutDown. The kernel replays its journal.
func (s *testFS) remount() {
	s.Helper()
	s.unmount()
	must(s.T, unix.Mount(s.device, s.dir, s.fstype, 0, ""))
	s.mounted = true
}
