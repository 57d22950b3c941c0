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

// bzImage returns the header of a kernel image with a release.
func bzImage(release string) []byte {
	head := make([]byte, 0x400)
	copy(head[0x202:], "HdrS")
	head[0x20e] = 0x80
	copy(head[0x280:], release+" (somebody@somewhere) #1 SMP\x00")
	return head
}

// machineRoot returns a root folder with a kernel and its modules.
func machineRoot(t *testing.T, release, dep, builtIn string) string {
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

// Modules are loaded after their dependencies, checksums first. Built-in modules are not loaded.
func TestModulesAreLoadedInOrder(t *testing.T) {
	o := New(Options{Root: machineRoot(t, "6.1.0-1-amd64", someModules, "kernel/drivers/scsi/sd_mod.ko\n")}).o
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

// If a file for the appliance is missing, the error names it and the remedy installs it.
func TestNoKernel(t *testing.T) {
	noDep := machineRoot(t, "6.1.0-1-amd64", "", "")
	if err := os.Remove(filepath.Join(noDep, "lib/modules/6.1.0-1-amd64/modules.dep")); err != nil {
		t.Fatal(err)
	}
	odd := machineRoot(t, "6.1.0-1-amd64", someModules, "")
	if err := os.WriteFile(filepath.Join(odd, "boot/vmlinuz-6.1.0-1-amd64"), []byte("\x7fELF"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ root, want string }{
		"no kernel":   {t.TempDir(), "no vmlinuz"},
		"no modules":  {noDep, "depmod did not run"},
		"no bzImage":  {odd, "not a bzImage"},
		"no xfs":      {machineRoot(t, "5.14.0-1", strings.ReplaceAll(someModules, "/xfs.ko", "/yfs.ko"), "kernel/drivers/scsi/sd_mod.ko\n"), "no module xfs"},
		"no hardware": {machineRoot(t, "5.14.0-1", "kernel/fs/xfs/xfs.ko:\n", ""), "no module virtio_pci"},
	} {
		_, err := New(Options{Root: c.root}).Mount(t.Context(), onXFS)
		if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.HintOf(err), "apt install") {
			t.Errorf("%s: got %v; %s, want an error about %q", name, err, fault.HintOf(err), c.want)
		}
	}
}

// Options.Kernel selects the kernel. If its modules are missing, the error contains the path that was searched.
func TestKernelOptionSelectsKernel(t *testing.T) {
	good, other := machineRoot(t, "6.1.0-1-amd64", someModules, "kernel/drivers/scsi/sd_mod.ko\n"), machineRoot(t, "5.14.0-1", someModules, "kernel/drivers/scsi/sd_mod.ko\n")
	apart := t.TempDir() // has images without modules
	for path, data := range map[string][]byte{"bare": bzImage("4.19.0-1"), "elf": []byte("\x7fELF")} {
		if err := os.WriteFile(filepath.Join(apart, path), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a := New(Options{Root: other, Kernel: filepath.Join(good, "boot/vmlinuz-6.1.0-1-amd64")})
	k, err := a.o.findKernel(onXFS)
	if err != nil || k.release != "6.1.0-1-amd64" || a.Check() != nil {
		t.Errorf("got kernel %+v, error %v", k, err)
	}
	for name, c := range map[string]struct {
		image string
		kind  fault.Kind
		want  string
	}{
		"missing":    {"none", fault.NotFound, "no such file"},
		"no modules": {"bare", fault.NotFound, "lib/modules/4.19.0-1"},
		"no kernel":  {"elf", fault.Unsupported, "not a bzImage"},
	} {
		err := New(Options{Root: other, Kernel: filepath.Join(apart, c.image)}).Check()
		if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v; %s, want an error about %q", name, err, fault.HintOf(err), c.want)
		}
	}
}

// A dynamically linked program is refused: the appliance has no libraries.
func TestProgramMustBeStatic(t *testing.T) {
	root := machineRoot(t, "6.1.0-1-amd64", "", "kernel/virtio_pci.ko\nkernel/virtio_scsi.ko\nkernel/sd_mod.ko\nkernel/virtio_console.ko\nkernel/xfs.ko\n")
	_, err := New(Options{Root: root, Program: "/bin/sh"}).Mount(t.Context(), onXFS)
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), "CGO_ENABLED=0") {
		t.Errorf("got %v; %s, want an unsupported error about CGO_ENABLED", err, fault.HintOf(err))
	}
}

// The console keeps the last lines, without control characters.
func TestConsoleKeepsTheLastLines(t *testing.T) {
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
		t.Errorf("console keeps %d bytes, last lines %q", len(c.text), got)
	}
}

func FuzzReleaseOf(f *testing.F) {
	f.Add(bzImage("6.1.0-1-amd64"))
	f.Add(bzImage("../../etc"))
	f.Fuzz(func(t *testing.T, image []byte) {
		if got, err := releaseOf(bytes.NewReader(image)); err == nil && (got == "" || strings.ContainsRune(got, '/')) {
			t.Errorf("got release %q", got)
		}
	})
}
