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

// examine runs the checks, with fake results in place of the programs of this machine.
func examine(t *testing.T, o Options) map[string]doctor.Finding {
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
			t.Errorf("a check with Advises returns finding %+v", f)
		}
		if f.Status != doctor.OK && (f.Remedy == "" || f.Found == "") {
			t.Errorf("the finding has no text or no remedy: %+v", f)
		}
		found[f.Code] = f
	}
	return found
}

func wantFinding(t *testing.T, f doctor.Finding, s doctor.Status, text string) {
	t.Helper()
	if f.Status != s || !strings.Contains(f.Found, text) {
		t.Errorf("%s: got %v: %s; want %v: %s", f.Code, f.Status, f.Found, s, text)
	}
}

// wantEmpty checks that a folder is empty.
func wantEmpty(t *testing.T, folder string) {
	t.Helper()
	left, err := os.ReadDir(folder)
	if err != nil || len(left) > 0 {
		t.Errorf("got entries %v, %v; want an empty folder", left, err)
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
		f := examine(t, o)["local-space"]
		wantFinding(t, f, want.status, fmt.Sprintf("%d.0 GiB free; the disks have 30.0 of 150.0 GiB allocated", free/gib))
		if !strings.HasPrefix(f.Want, want.want) {
			t.Errorf("got want %q, want %q", f.Want, want.want)
		}
	}
}

// For a folder that does not exist, the checks examine its nearest parent. They do not create the folder.
func TestFolderDoesNotExist(t *testing.T) {
	dir := t.TempDir()
	found := examine(t, Options{Folder: filepath.Join(dir, "a/b"), Speed: 10 * time.Millisecond})
	wantFinding(t, found["local-folder"], doctor.OK, "the folder can be created in "+dir)
	wantFinding(t, found["local-sparse"], doctor.OK, "sparse files and hole punching work")
	if s := found["local-speed"]; s.Status == doctor.Unknown || !strings.Contains(s.Found, " MB/s with 4 concurrent writes of 2 MiB (") {
		t.Errorf("got finding %+v", s)
	}
	wantEmpty(t, dir)
}

func TestFolderIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	found := examine(t, Options{Folder: file})
	wantFinding(t, found["local-folder"], doctor.Failure, "not a directory")
	if len(found) != 4 { // the folder, and KVM, QEMU and virt-v2v, which do not depend on it
		t.Errorf("got findings %v, want none of dependent checks", found)
	}
}

// The checks report missing features of file systems. The test requires root and the file systems in the kernel.
func TestFileSystemsWithMissingFeatures(t *testing.T) {
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
			found := examine(t, Options{Folder: dir, Speed: 10 * time.Millisecond, Disks: []Disk{{"d", gib, gib}}})
			for code, s := range v.want {
				wantFinding(t, found[code], s, "")
			}
			wantEmpty(t, dir)
		})
	}
}

// With blocks of 1 KiB, ext4 limits files to 16 GiB. A read-only file system permits no files.
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
	wantFinding(t, examine(t, o)["local-size"], doctor.Failure, "cannot create a file of 102400.0 GiB for large: file too large")
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	f := examine(t, o)["local-folder"]
	if wantFinding(t, f, doctor.Failure, "read-only file system"); !strings.HasPrefix(f.Remedy, "mount -o remount,rw") {
		t.Errorf("got remedy %q", f.Remedy)
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
	old := map[string]string{ // control groups version 1, as in RHEL 8
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
		text, remedy string
	}{
		{machine(nil), 16 * gib, doctor.OK, "32.0 GiB of memory are available (limit of the machine)", ""},
		{machine(nil), 32 * gib, doctor.Warning, "32.0 GiB", "--landing tmpfs:31G"},
		{machine(nil), 40 * gib, doctor.Failure, "32.0 GiB", "--landing tmpfs:31G"},
		{machine(group), 16 * gib, doctor.Failure, "8.0 GiB of memory are available (limit of the control group /system.slice)", "--landing tmpfs:7G"},
		{machine(old), 8 * gib, doctor.Failure, "3.0 GiB of memory are available (limit of the control group /box)", "--landing tmpfs:2G"},
		{fstest.MapFS{}, gib, doctor.Unknown, "meminfo", "free -g"},
		{fstest.MapFS{"proc/meminfo": {Data: []byte("MemAvailable: 1000 kB\n")}}, gib, doctor.Failure, "0.0 GiB", "omit --landing tmpfs"},
	} {
		f := examine(t, Options{Root: v.root, Tmpfs: v.tmpfs})["local-memory"]
		wantFinding(t, f, v.status, v.text)
		if !strings.Contains(f.Remedy, v.remedy) {
			t.Errorf("got remedy %q, want %q", f.Remedy, v.remedy)
		}
	}
	if f, ok := examine(t, Options{})["local-memory"]; ok {
		t.Errorf("got finding %+v without a landing", f)
	}
}

func TestKVM(t *testing.T) {
	cpu := func(flags string) fs.FS {
		return fstest.MapFS{"proc/cpuinfo": {Data: []byte("processor\t: 0\nflags\t\t: fpu " + flags + " sse\n")}}
	}
	for _, v := range []struct {
		err    error
		root   fs.FS
		status doctor.Status
		text   string
	}{
		{nil, nil, doctor.OK, "a virtual CPU ran its code"},
		{&fs.PathError{Op: "open", Path: "/dev/kvm", Err: unix.ENOENT}, cpu("vmx"), doctor.Warning, "/dev/kvm does not exist; the CPU supports virtualization"},
		{&fs.PathError{Op: "open", Path: "/dev/kvm", Err: unix.ENOENT}, cpu("vmx_no"), doctor.Warning, "does not exist; the CPU reports no virtualization"},
		{&fs.PathError{Op: "open", Path: "/dev/kvm", Err: unix.EACCES}, nil, doctor.Warning, "permission denied"},
		{fmt.Errorf("KVM_RUN: %w", unix.EIO), nil, doctor.Warning, "/dev/kvm exists, but cannot run a guest: KVM_RUN: input/output error"},
		{fmt.Errorf("a guest for arm64: %w", errors.ErrUnsupported), nil, doctor.Unknown, "arm64"},
	} {
		wantFinding(t, examine(t, Options{Root: v.root, Start: func(context.Context, string) error { return v.err }})["local-kvm"], v.status, v.text)
	}
}

func TestVirtV2V(t *testing.T) {
	for _, v := range []struct {
		tool   virtv2v.Tool
		err    error
		status doctor.Status
		text   string
	}{
		{err: fault.New(fault.NotFound, "it is not installed here"), status: doctor.Advice, text: "such guests keep their hardware"},
		{err: errors.New("exit status 1"), status: doctor.Unknown, text: "exit status 1"},
		{tool: virtv2v.Tool{Path: "/usr/bin/virt-v2v-in-place", Version: "2.2.0"}, status: doctor.Advice, text: "2.2.0 (/usr/bin/virt-v2v-in-place) has no --block-driver"},
	} {
		found := examine(t, Options{V2V: func(context.Context) (virtv2v.Tool, error) { return v.tool, v.err }})
		wantFinding(t, found["local-virt-v2v"], v.status, v.text)
	}
}

func TestQEMU(t *testing.T) {
	for _, v := range []struct {
		output string
		err    error
		status doctor.Status
		text   string
	}{
		{"QEMU emulator version 10.0.2\nCopyright", nil, doctor.OK, "QEMU emulator version 10.0.2"},
		{"QEMU emulator version 5.2.0 (Debian)", nil, doctor.OK, "5.2.0"},
		{"QEMU emulator version 4.2.1 (Debian)", nil, doctor.Advice, "4.2.1"},
		{"something else", nil, doctor.Unknown, "something else"},
		{"", &exec.Error{Name: "qemu-system-x86_64", Err: exec.ErrNotFound}, doctor.Advice, "not installed"},
		{"", errors.New("exit status 1"), doctor.Unknown, "exit status 1"},
	} {
		wantFinding(t, examine(t, Options{QEMU: func(context.Context) (string, error) { return v.output, v.err }})["local-qemu"], v.status, v.text)
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
			t.Fatalf("got %d bytes", n)
		}
	})
}
