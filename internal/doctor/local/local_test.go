package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/diskspace"
	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

// look examines with checks that would look at this machine replaced.
func look(t *testing.T, o Options) map[string]doctor.Finding {
	t.Helper()
	if o.Start == nil {
		o.Start = func(context.Context, string) error { return nil }
	}
	if o.QEMU == nil {
		o.QEMU = func(context.Context) (string, error) { return "QEMU emulator version 7.2.22 (Debian 1:7.2)\n", nil }
	}
	if o.V2V == nil {
		o.V2V = func(context.Context) (virtv2v.Tool, error) {
			return virtv2v.Tool{}, fault.New(fault.NotFound, "it is not installed here")
		}
	}
	found, advises := map[string]doctor.Finding{}, map[string]bool{}
	checks := Checks(o)
	for _, c := range checks {
		advises[c.Code] = c.Advises
	}
	for _, f := range doctor.Examine(t.Context(), checks, doctor.Options{}) {
		if advises[f.Code] && f.Status > doctor.Advice {
			t.Errorf("a check that only advises finds %+v", f)
		}
		if f.Status != doctor.OK && (f.Remedy == "" || f.Found == "") {
			t.Errorf("nothing to do about %+v", f)
		}
		found[f.Code] = f
	}
	return found
}

func expect(t *testing.T, f doctor.Finding, s doctor.Status, seen string) {
	t.Helper()
	if f.Status != s || !strings.Contains(f.Found, seen) {
		t.Errorf("%s: %v: %s: want %v: %s", f.Code, f.Status, f.Found, s, seen)
	}
}

// empty fails if anything is in a folder.
func empty(t *testing.T, folder string) {
	t.Helper()
	left, err := os.ReadDir(folder)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestRoom(t *testing.T) {
	disks := []Disk{{"web01/0", 100 * gib, 20 * gib}, {"web01/1", 50 * gib, 10 * gib}}
	for free, want := range map[int64]struct {
		status doctor.Status
		want   string
	}{
		200 * gib: {doctor.OK, ""},
		100 * gib: {doctor.Warning, "50.0 GiB more free space, for later writes"},
		25 * gib:  {doctor.Failure, "5.0 GiB more free space"},
	} {
		o := Options{Folder: t.TempDir(), Disks: disks, Speed: time.Millisecond, Room: func(string) (diskspace.Space, error) { return diskspace.Space{Available: free}, nil }}
		f := look(t, o)["local-space"]
		expect(t, f, want.status, fmt.Sprintf("%d.0 GiB free; the disks have 30.0 of 150.0 GiB allocated", free/gib))
		if !strings.HasPrefix(f.Want, want.want) {
			t.Errorf("wants %q, not %q", f.Want, want.want)
		}
	}
}

// A folder that is not there yet is judged by where it would be made, and is not made.
func TestFolderThatIsToBe(t *testing.T) {
	dir := t.TempDir()
	found := look(t, Options{Folder: filepath.Join(dir, "a/b"), Speed: 10 * time.Millisecond})
	expect(t, found["local-folder"], doctor.OK, "the folder can be created in "+dir)
	expect(t, found["local-sparse"], doctor.OK, "sparse files and hole punching work")
	if s := found["local-speed"]; s.Status == doctor.Unknown || !strings.Contains(s.Found, " MB/s with 4 concurrent writes of 2 MiB (") {
		t.Errorf("speed: %+v", s)
	}
	empty(t, dir)
}

func TestFolderThatIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	found := look(t, Options{Folder: file})
	expect(t, found["local-folder"], doctor.Failure, "not a directory")
	if len(found) != 4 { // what does not depend on it: KVM, QEMU and virt-v2v
		t.Errorf("children are not silent: %v", found)
	}
}

// File systems that lack something. The kernel may not have them, or this may not be root's.
func TestFileSystemsThatLackSomething(t *testing.T) {
	for fstype, v := range map[string]struct {
		options string
		want    map[string]doctor.Status
	}{
		"ramfs": {"", map[string]doctor.Status{"local-folder": doctor.OK, "local-sparse": doctor.Warning, "local-direct": doctor.Advice, "local-reflink": doctor.OK}},
		"tmpfs": {"size=16m", map[string]doctor.Status{"local-folder": doctor.OK, "local-sparse": doctor.OK, "local-space": doctor.Failure}},
	} {
		t.Run(fstype, func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("none", dir, fstype, 0, v.options); err != nil {
				t.Skipf("cannot mount %s: %v", fstype, err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, 0); err != nil {
					t.Error(err)
				}
			})
			found := look(t, Options{Folder: dir, Speed: 10 * time.Millisecond, Disks: []Disk{{"d", gib, gib}}})
			for code, s := range v.want {
				expect(t, found[code], s, "")
			}
			empty(t, dir)
		})
	}
}

// 1 KiB blocks make ext4 end at 16 GiB a file, and read-only refuses all.
func TestSmallFilesAndReadOnly(t *testing.T) {
	for _, tool := range []string{"losetup", "mkfs.ext4"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 32*mib)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-b", "1024", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Skipf("cannot mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	o := Options{Folder: filepath.Join(dir, "vm"), Speed: 10 * time.Millisecond, Disks: []Disk{{"small", gib, 0}, {"large", 100 << 40, 0}}}
	expect(t, look(t, o)["local-size"], doctor.Failure, "cannot create a file of 102400.0 GiB for large: file too large")
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	f := look(t, o)["local-folder"]
	if expect(t, f, doctor.Failure, "read-only file system"); !strings.HasPrefix(f.Remedy, "mount -o remount,rw") {
		t.Errorf("remedy %q", f.Remedy)
	}
}

func TestMemory(t *testing.T) {
	machine := func(more map[string]string) fs.FS {
		root := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal:       65536000 kB\nMemFree: 1 kB\nMemAvailable:   33554432 kB\n")}}
		for name, text := range more {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		return root
	}
	group := map[string]string{
		"proc/self/cgroup":                          "0::/system.slice/decamp.service\n",
		"sys/fs/cgroup/system.slice/memory.max":     "10737418240\n",
		"sys/fs/cgroup/system.slice/memory.current": "4294967296\n",
		"sys/fs/cgroup/system.slice/memory.stat":    "anon 5\ninactive_file 2147483648\n",
		"sys/fs/cgroup/memory.max":                  "max\n",
	}
	old := map[string]string{ // version 1, as RHEL 8 has it
		"proc/self/cgroup": "4:cpuset,memory:/box\n1:cpu:/\n0::/\n",
		"sys/fs/cgroup/memory/box/memory.limit_in_bytes": "4294967296\n",
		"sys/fs/cgroup/memory/box/memory.usage_in_bytes": "1073741824\n",
		"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
		"sys/fs/cgroup/memory/memory.usage_in_bytes":     "1\n",
	}
	for _, v := range []struct {
		root         fs.FS
		tmpfs        int64
		status       doctor.Status
		seen, remedy string
	}{
		{machine(nil), 16 * gib, doctor.OK, "32.0 GiB of memory are available (limit of the machine)", ""},
		{machine(nil), 32 * gib, doctor.Warning, "32.0 GiB", "--landing tmpfs:31G"},
		{machine(nil), 40 * gib, doctor.Failure, "32.0 GiB", "--landing tmpfs:31G"},
		{machine(group), 16 * gib, doctor.Failure, "8.0 GiB of memory are available (limit of the control group /system.slice)", "--landing tmpfs:7G"},
		{machine(old), 8 * gib, doctor.Failure, "3.0 GiB of memory are available (limit of the control group /box)", "--landing tmpfs:2G"},
		{fstest.MapFS{}, gib, doctor.Unknown, "meminfo", "free -g"},
		{fstest.MapFS{"proc/meminfo": {Data: []byte("MemAvailable: 1000 kB\n")}}, gib, doctor.Failure, "0.0 GiB", "omit --landing tmpfs"},
	} {
		f := look(t, Options{Root: v.root, Tmpfs: v.tmpfs})["local-memory"]
		expect(t, f, v.status, v.seen)
		if !strings.Contains(f.Remedy, v.remedy) {
			t.Errorf("remedy %q, want %q", f.Remedy, v.remedy)
		}
	}
	if f, told := look(t, Options{})["local-memory"]; told {
		t.Errorf("told of a landing that nobody asked for: %+v", f)
	}
}

func TestKVMIsJudged(t *testing.T) {
	cpu := func(flags string) fs.FS {
		return fstest.MapFS{"proc/cpuinfo": {Data: []byte("processor\t: 0\nflags\t\t: fpu " + flags + " sse\n")}}
	}
	for _, v := range []struct {
		err    error
		root   fs.FS
		status doctor.Status
		seen   string
	}{
		{nil, nil, doctor.OK, "a virtual CPU ran its code"},
		{&fs.PathError{Op: "open", Path: "/dev/kvm", Err: unix.ENOENT}, cpu("vmx"), doctor.Warning, "/dev/kvm does not exist; the CPU supports virtualization"},
		{&fs.PathError{Op: "open", Path: "/dev/kvm", Err: unix.ENOENT}, cpu("vmx_no"), doctor.Warning, "does not exist; the CPU reports no virtualization"},
		{&fs.PathError{Op: "open", Path: "/dev/kvm", Err: unix.EACCES}, nil, doctor.Warning, "permission denied"},
		{fmt.Errorf("KVM_RUN: %w", unix.EIO), nil, doctor.Warning, "/dev/kvm exists, but cannot run a guest: KVM_RUN: input/output error"},
		{fmt.Errorf("a guest for arm64: %w", errors.ErrUnsupported), nil, doctor.Unknown, "arm64"},
	} {
		expect(t, look(t, Options{Root: v.root, Start: func(context.Context, string) error { return v.err }})["local-kvm"], v.status, v.seen)
	}
}

func TestVirtV2VIsJudged(t *testing.T) {
	for _, v := range []struct {
		tool   virtv2v.Tool
		err    error
		status doctor.Status
		seen   string
	}{
		{err: fault.New(fault.NotFound, "it is not installed here"), status: doctor.Advice, seen: "such guests keep their hardware"},
		{err: errors.New("exit status 1"), status: doctor.Unknown, seen: "exit status 1"},
		{tool: virtv2v.Tool{Path: "/usr/bin/virt-v2v-in-place", Version: "2.2.0"}, status: doctor.Advice, seen: "2.2.0 (/usr/bin/virt-v2v-in-place) has no --block-driver"},
	} {
		look := look(t, Options{V2V: func(context.Context) (virtv2v.Tool, error) { return v.tool, v.err }})
		expect(t, look["local-virt-v2v"], v.status, v.seen)
	}
}

func TestQEMUIsJudged(t *testing.T) {
	for _, v := range []struct {
		text   string
		err    error
		status doctor.Status
		seen   string
	}{
		{"QEMU emulator version 10.0.2\nCopyright", nil, doctor.OK, "QEMU emulator version 10.0.2"},
		{"QEMU emulator version 5.2.0 (Debian)", nil, doctor.OK, "5.2.0"},
		{"QEMU emulator version 4.2.1 (Debian)", nil, doctor.Advice, "4.2.1"},
		{"something else", nil, doctor.Unknown, "something else"},
		{"", &exec.Error{Name: "qemu-system-x86_64", Err: exec.ErrNotFound}, doctor.Advice, "not installed"},
		{"", errors.New("exit status 1"), doctor.Unknown, "exit status 1"},
	} {
		expect(t, look(t, Options{QEMU: func(context.Context) (string, error) { return v.text, v.err }})["local-qemu"], v.status, v.seen)
	}
}

func FuzzMemory(f *testing.F) {
	f.Add("MemAvailable: 33554432 kB\n", "0::/a/b\n", "max", "inactive_file 7\n")
	f.Fuzz(func(t *testing.T, info, groups, most, stat string) {
		e := &examiner{Options{Tmpfs: gib, Root: fstest.MapFS{
			"proc/meminfo": {Data: []byte(info)}, "proc/self/cgroup": {Data: []byte(groups)},
			"sys/fs/cgroup/memory.max": {Data: []byte(most)}, "sys/fs/cgroup/memory.current": {Data: []byte("9")}, "sys/fs/cgroup/memory.stat": {Data: []byte(stat)},
		}}}
		if n, _, err := e.availableMemory(); err == nil && n < 0 {
			t.Fatalf("%d bytes", n)
		}
	})
}
