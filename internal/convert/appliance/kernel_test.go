package appliance

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
)

// bzImage is the head of a kernel.
func bzImage(release string) []byte {
	head := make([]byte, 0x400)
	copy(head[0x202:], "HdrS")
	head[0x20e] = 0x80
	copy(head[0x280:], release+" (somebody@somewhere) #1 SMP\x00")
	return head
}

// machine has a kernel in its boot folder, and its modules.
func machine(t *testing.T, release, dep, builtIn string) string {
	t.Helper()
	root := t.TempDir()
	modules := filepath.Join(root, "lib/modules", release)
	for _, dir := range []string{filepath.Join(root, "boot"), modules} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, data := range map[string][]byte{
		filepath.Join(root, "boot/vmlinuz-"+release): bzImage(release),
		filepath.Join(modules, "modules.dep"):        []byte(dep),
		filepath.Join(modules, "modules.builtin"):    []byte(builtIn),
	} {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const someModules = `kernel/drivers/virtio/virtio_pci.ko.xz: kernel/drivers/virtio/virtio_ring.ko.xz kernel/drivers/virtio/virtio.ko.xz
kernel/drivers/scsi/virtio_scsi.ko.xz: kernel/drivers/virtio/virtio_ring.ko.xz kernel/drivers/virtio/virtio.ko.xz
kernel/drivers/char/virtio_console.ko.xz:
kernel/crypto/crc32c_generic.ko.xz:
kernel/fs/xfs/xfs.ko.xz: kernel/lib/libcrc32c.ko.xz
`

var onXFS = []convert.Volume{{Kind: guest.XFS}}

// Modules are loaded after what they need, checksums first, and what is built in not at all.
func TestModulesAreLoadedInOrder(t *testing.T) {
	o := New(Options{Root: machine(t, "6.1.0-1-amd64", someModules, "kernel/drivers/scsi/sd_mod.ko\n")}).o
	k, err := o.findKernel(onXFS)
	if err != nil {
		t.Fatal(err)
	}
	load, err := k.modulesToLoad(onXFS)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range load {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".ko.xz"))
	}
	if want := []string{"crc32c_generic", "virtio", "virtio_ring", "virtio_pci", "virtio_scsi", "virtio_console", "libcrc32c", "xfs"}; !slices.Equal(names, want) {
		t.Errorf("loaded %q, want %q", names, want)
	}
}

// A machine that has nothing to make an appliance of says what it lacks, and how to get it.
func TestNoKernel(t *testing.T) {
	noDep := machine(t, "6.1.0-1-amd64", "", "")
	if err := os.Remove(filepath.Join(noDep, "lib/modules/6.1.0-1-amd64/modules.dep")); err != nil {
		t.Fatal(err)
	}
	odd := machine(t, "6.1.0-1-amd64", someModules, "")
	if err := os.WriteFile(filepath.Join(odd, "boot/vmlinuz-6.1.0-1-amd64"), []byte("\x7fELF"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ root, want string }{
		"no kernel":   {t.TempDir(), "no vmlinuz"},
		"no modules":  {noDep, "depmod did not run"},
		"no bzImage":  {odd, "not a bzImage"},
		"no xfs":      {machine(t, "5.14.0-1", strings.ReplaceAll(someModules, "/xfs.ko", "/yfs.ko"), "kernel/drivers/scsi/sd_mod.ko\n"), "no module xfs"},
		"no hardware": {machine(t, "5.14.0-1", "kernel/fs/xfs/xfs.ko:\n", ""), "no module virtio_pci"},
	} {
		_, err := New(Options{Root: c.root}).Mount(t.Context(), onXFS)
		if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.HintOf(err), "apt install") {
			t.Errorf("%s: %v; %s", name, err, fault.HintOf(err))
		}
	}
}

// A kernel that is named is taken, and no other; what it lacks is said with where it was looked for.
func TestKernelThatIsNamed(t *testing.T) {
	good, other := machine(t, "6.1.0-1-amd64", someModules, "kernel/drivers/scsi/sd_mod.ko\n"), machine(t, "5.14.0-1", someModules, "kernel/drivers/scsi/sd_mod.ko\n")
	apart := t.TempDir() // an image with no modules near it
	for path, data := range map[string][]byte{"bare": bzImage("4.19.0-1"), "elf": []byte("\x7fELF")} {
		if err := os.WriteFile(filepath.Join(apart, path), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a := New(Options{Root: other, Kernel: filepath.Join(good, "boot/vmlinuz-6.1.0-1-amd64")})
	k, err := a.o.findKernel(onXFS)
	if err != nil || k.release != "6.1.0-1-amd64" || a.Check() != nil {
		t.Errorf("%+v, %v", k, err)
	}
	for name, c := range map[string]struct {
		image string
		kind  fault.Kind
		want  string
	}{
		"is not there": {"none", fault.NotFound, "no such file"},
		"no modules":   {"bare", fault.NotFound, "lib/modules/4.19.0-1"},
		"no kernel":    {"elf", fault.Unsupported, "not a bzImage"},
	} {
		err := New(Options{Root: other, Kernel: filepath.Join(apart, c.image)}).Check()
		if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v; %s", name, err, fault.HintOf(err))
		}
	}
}

// A program that needs libraries cannot be alone in a VM.
func TestProgramHasToBeStatic(t *testing.T) {
	root := machine(t, "6.1.0-1-amd64", "", "kernel/virtio_pci.ko\nkernel/virtio_scsi.ko\nkernel/sd_mod.ko\nkernel/virtio_console.ko\nkernel/xfs.ko\n")
	_, err := New(Options{Root: root, Program: "/bin/sh"}).Mount(t.Context(), onXFS)
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), "CGO_ENABLED=0") {
		t.Errorf("%v; %s", err, fault.HintOf(err))
	}
}

// What the console keeps is its end, and nothing that a terminal would act on.
func TestConsoleKeepsItsEnd(t *testing.T) {
	c := &console{}
	for range 10000 {
		if _, err := c.Write([]byte("line that is forgotten\n")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Write([]byte("\x1b[2J panic\r\n\nlast")); err != nil {
		t.Fatal(err)
	}
	if got := c.lastLines(); len(c.text) > maxConsole || !strings.HasSuffix(got, "; [2J panic; last") {
		t.Errorf("%d bytes kept, %q", len(c.text), got)
	}
}

func FuzzReleaseOf(f *testing.F) {
	f.Add(bzImage("6.1.0-1-amd64"))
	f.Add(bzImage("../../etc"))
	f.Fuzz(func(t *testing.T, image []byte) {
		if got, err := releaseOf(bytes.NewReader(image)); err == nil && (got == "" || strings.ContainsRune(got, '/')) {
			t.Errorf("%q", got)
		}
	})
}
