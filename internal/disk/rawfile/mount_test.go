package rawfile

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
	"github.com/decamp/decamp/internal/fault"
)

// mountFS mounts a file system of the given type and options in a new folder.
func mountFS(t *testing.T, device, fstype, options string) string {
	t.Helper()
	skipWithout(t, "root")
	dir := t.TempDir()
	if err := unix.Mount(device, dir, fstype, 0, options); err != nil {
		t.Skipf("needs to mount %s, which the kernel refuses: %v", fstype, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// newLoopDevice attaches a loop device to a new file of size bytes.
func newLoopDevice(t *testing.T, size int64) (dev, file string) {
	t.Helper()
	skipWithout(t, "root")
	skipWithout(t, "losetup")
	file = filepath.Join(t.TempDir(), "backing")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("needs a loop device: %v: %s", err, out)
	}
	dev = strings.TrimSpace(string(out))
	t.Cleanup(func() { runCommand(t, "losetup", "--detach", dev) })
	return dev, file
}

func runCommand(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %v: %v: %s", name, args, err, out)
	}
}

// TestConformanceOnOtherFileSystems runs on file systems without direct I/O (ramfs), RWF_DONTCACHE (tmpfs) or holes
// (ramfs).
func TestConformanceOnOtherFileSystems(t *testing.T) {
	for fstype, want := range map[string]Mode{"ramfs": Behind, "tmpfs": Direct} {
		t.Run(fstype, func(t *testing.T) {
			dir := mountFS(t, "none", fstype, "")
			n := 0
			disktest.TestTarget(t, func(t *testing.T, size int64) disktest.Image {
				n++
				path := filepath.Join(dir, string(rune('a'+n)))
				return disktest.Image{
					Create: func() (disk.Target, error) {
						f, err := Create(path, size, Options{})
						if err == nil && f.Mode() != want {
							t.Logf("mode %v, expected %v on Linux 6.18", f.Mode(), want)
						}
						return f, err
					},
					Resume: func() (disk.Target, error) { return Open(path, Options{}) },
					Source: func() (disk.Source, error) { return OpenSource(path, SourceOptions{Direct: true}) },
				}
			})
		})
	}
}

func TestBlockDevice(t *testing.T) {
	const size = 8<<20 + 512 // smaller than the device
	dev, _ := newLoopDevice(t, 16<<20)
	for _, m := range modes {
		f, err := Open(dev, Options{Size: size, Mode: m})
		if err != nil {
			t.Fatal(err)
		}
		full, sparse := disk.NewPattern(size), disk.NewSparsePattern(size, 0.5, 9)
		copyRange(t, f, full, disk.Range{Len: size})
		if err := f.Zero(t.Context(), disk.Range{Len: size}); err != nil {
			t.Fatal(err)
		}
		copyRange(t, f, sparse, disk.Range{Len: size})
		if err := f.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		s, err := OpenSource(dev, SourceOptions{Size: size, Direct: true})
		if err != nil {
			t.Fatal(err)
		}
		got, want := make([]byte, size), make([]byte, size)
		err = errors.Join(s.ReadAt(t.Context(), got, 0), sparse.ReadAt(t.Context(), want, 0), s.Close())
		if err != nil || !bytes.Equal(got, want) || s.Medium() != MediumDirect {
			t.Errorf("%v: content differs or was not read from the medium (%s): %v", m, s.Medium(), err)
		}
	}
	if _, err := Open(dev, Options{Size: 17 << 20}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a disk larger than its device: got %v, want a conflict", err)
	}
}

func TestBusyDeviceIsRefused(t *testing.T) {
	skipWithout(t, "mkfs.ext4")
	dev, _ := newLoopDevice(t, 16<<20)
	runCommand(t, "mkfs.ext4", "-q", dev)
	mountFS(t, dev, "ext4", "")
	if _, err := Open(dev, Options{}); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("open a mounted device: got %v, want a conflict with a remedy", err)
	}
}

// TestFlippedByteOnMediumIsRead flips a byte of the device while the page cache still has the original. Sources that
// bypass or drop the cache read the flipped byte. decamp verify relies on this.
func TestFlippedByteOnMediumIsRead(t *testing.T) {
	skipWithout(t, "mkfs.ext4")
	dev, backing := newLoopDevice(t, 16<<20)
	runCommand(t, "mkfs.ext4", "-q", dev)
	path := filepath.Join(mountFS(t, dev, "ext4", ""), "disk.raw")
	writeImage(t, path, disk.NewPattern(1<<20))
	sources := map[string]*Source{
		MediumCache:   openSource(t, path, false),
		MediumDirect:  openSource(t, path, true),
		MediumDropped: openSource(t, path, false),
	}
	t.Cleanup(func() {
		for _, s := range sources {
			_ = s.Close() // only read from
		}
	})
	p := make([]byte, 64)
	if err := sources[MediumCache].ReadAt(t.Context(), p, 512<<10); err != nil { // fills the page cache
		t.Fatal(err)
	}
	flipBit(t, backing, p)
	sources[MediumDropped].startDropping()
	for _, medium := range []string{MediumCache, MediumDirect, MediumDropped} {
		s, q := sources[medium], make([]byte, len(p))
		if err := s.ReadAt(t.Context(), q, 512<<10); err != nil {
			t.Fatal(err)
		}
		if seen := !bytes.Equal(p, q); seen != (medium != MediumCache) || s.Medium() != medium {
			t.Errorf("%s: flipped byte read: %v; medium %q", medium, seen, s.Medium())
		}
	}
}

// flipBit flips a bit in the only occurrence of word in file.
func flipBit(t *testing.T, file string, word []byte) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(content, word)
	if at < 0 || bytes.Count(content, word) != 1 {
		t.Fatalf("%x is in the file %d times, want once", word, bytes.Count(content, word))
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{word[0] ^ 0x10}, int64(at))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestFullFileSystem fills a small file system, frees space and resumes.
func TestFullFileSystem(t *testing.T) {
	skipWithout(t, "mkfs.ext4")
	small := map[string]func(t *testing.T) string{
		"tmpfs": func(t *testing.T) string { return mountFS(t, "none", "tmpfs", "size=6m") },
		"ext4": func(t *testing.T) string {
			dev, _ := newLoopDevice(t, 8<<20)
			runCommand(t, "mkfs.ext4", "-q", "-O", "^has_journal", dev)
			return mountFS(t, dev, "ext4", "")
		},
	}
	for name, folder := range small {
		for _, m := range modes {
			t.Run(name+" "+m.String(), func(t *testing.T) { fillAndResume(t, folder(t), m) })
		}
	}
}

func fillAndResume(t *testing.T, dir string, m Mode) {
	const size = 4 << 20
	ballast, path := filepath.Join(dir, "ballast"), filepath.Join(dir, "disk.raw")
	if err := os.WriteFile(ballast, make([]byte, freeBytes(t, dir)-2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path, size, Options{Mode: m})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // closes the file if the test fails early
	src := disk.NewPattern(size)
	err = writeUntilFull(t, f, src)
	if !fault.Is(err, fault.Full) || !strings.Contains(fault.HintOf(err), dir) || !strings.Contains(fault.HintOf(err), "bytes free") {
		t.Fatalf("full file system: got %v (%v), remedy %q", err, fault.KindOf(err), fault.HintOf(err))
	}
	if err := errors.Join(f.Close(), os.Remove(ballast)); err != nil {
		t.Fatal(err)
	}
	if f, err = Open(path, Options{Mode: m, Size: size}); err != nil {
		t.Fatal(err)
	}
	copyRange(t, f, src, disk.Range{Len: size})
	if err := f.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	want := make([]byte, size)
	if err := errors.Join(err, src.ReadAt(t.Context(), want, 0)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("content differs after resuming (%v)", err)
	}
}

func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Frsize
}

// writeUntilFull returns the first error of writing and syncing all of src.
func writeUntilFull(t *testing.T, f *File, src disk.Source) error {
	t.Helper()
	p := make([]byte, 512<<10)
	for off := int64(0); off < src.Size(); off += int64(len(p)) {
		if err := src.ReadAt(t.Context(), p, off); err != nil {
			t.Fatal(err)
		}
		if err := f.WriteAt(t.Context(), p, off); err != nil {
			return err
		}
	}
	return f.Sync(t.Context())
}
