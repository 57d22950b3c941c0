package appliance

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/initramfs"
)

// A kernel is a kernel image with its modules.
type kernel struct {
	image   string              // path of the image
	release string              // release: "6.1.0-56-cloud-amd64"
	dir     string              // folder of the modules: lib/modules/RELEASE
	needs   map[string][]string // dependencies by a module's path in dir; the deepest comes last
	pathOf  map[string]string   // path by a module's name
	builtIn map[string]bool     // built-in modules by name
}

// hint to install a kernel
const findHint = "apt install linux-image-cloud-amd64   # dnf install kernel-core; its image belongs in /boot, its modules in /lib/modules"

// findKernel returns the configured kernel, or the newest one that has the modules for the volumes.
func (o Options) findKernel(volumes []convert.Volume) (*kernel, error) {
	if o.Kernel != "" {
		return o.namedKernel(volumes)
	}
	// A newer kernel without a required module does not hide an older one that has it.
	images := o.listImages()
	var failed []error
	for _, image := range images {
		k, err := o.readKernel(image)
		if err == nil {
			_, err = k.modulesToLoad(volumes)
		}
		if err == nil {
			return k, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", image, err))
	}
	if failed == nil {
		return nil, fault.New(fault.NotFound, "no kernel for an appliance: no vmlinuz in %s with modules in %s",
			filepath.Join(o.Root, "boot"), filepath.Join(o.Root, "lib/modules")).WithHint(findHint)
	}
	return nil, fault.New(fault.NotFound, "no kernel is suitable for an appliance: %w", errors.Join(failed...)).WithHint(findHint)
}

// namedKernel returns the kernel that the user configured; it fails if that has not all modules for the
// volumes.
func (o Options) namedKernel(volumes []convert.Volume) (*kernel, error) {
	k, err := o.readKernel(o.Kernel)
	if err == nil {
		_, err = k.modulesToLoad(volumes)
	}
	if err == nil {
		return k, nil
	}
	kind, hint := fault.KindOf(err), fault.HintOf(err)
	// Errors of the operating system, such as a missing file, have no kind.
	if kind == fault.Internal {
		kind = fault.NotFound
	}
	if hint == "" {
		hint = "set a distribution's kernel for x86-64 with its modules on this machine (--appliance-kernel): ls /boot/vmlinuz-*; ls /lib/modules"
	}
	return nil, fault.New(kind, "%s is not suitable as an appliance's kernel: %w", o.Kernel, err).WithHint("%s", hint)
}

// listImages returns the kernel images of this machine, newest first.
func (o Options) listImages() []string {
	var found []string
	for _, pattern := range []string{"boot/vmlinuz-*", "lib/modules/*/vmlinuz"} {
		names, _ := filepath.Glob(filepath.Join(o.Root, pattern)) // fails only for an invalid pattern
		found = append(found, names...)
	}
	// Release numbers of different distributions are not comparable, but times are.
	age := map[string]int64{}
	for _, name := range found {
		if info, err := os.Stat(name); err == nil {
			age[name] = info.ModTime().UnixNano()
		}
	}
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(age[b], age[a]) })
	return found
}

// readKernel reads the release of a kernel image and its lists of modules.
func (o Options) readKernel(image string) (*kernel, error) {
	f, err := os.Open(image)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fault.New(fault.Denied, "%w", err).WithHint("run this as root, or: chmod +r %s", image)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	release, err := releaseOf(f)
	if err != nil {
		return nil, err
	}
	k := &kernel{image: image, release: release, needs: map[string][]string{}, pathOf: map[string]string{}, builtIn: map[string]bool{}}
	beside := filepath.Dir(image)
	// Packages install modules below /lib or /usr/lib; an unpacked package has both next to the image.
	dirs := []string{beside, filepath.Join(beside, "../lib/modules", release), filepath.Join(beside, "../usr/lib/modules", release),
		filepath.Join(beside, "lib/modules", release), filepath.Join(o.Root, "lib/modules", release)}
	for _, dir := range dirs {
		if text, err := os.ReadFile(filepath.Join(dir, "modules.dep")); err == nil {
			k.dir = dir
			k.readIndexes(string(text))
			return k, nil
		}
	}
	return nil, fault.New(fault.NotFound, "no modules.dep for kernel %s: its modules are not installed, or depmod did not run; looked in %s", release, strings.Join(dirs, ", ")).
		WithHint("put the modules of the same package in the folder of the kernel as lib/modules/%s, and run: depmod -b %s %s", release, fault.Quote(beside), release)
}

// releaseOf returns the release of a kernel image. Its offset is defined in
// Documentation/arch/x86/boot.rst.
func releaseOf(f io.ReaderAt) (string, error) {
	head := make([]byte, 64<<10)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	head = head[:n]
	// Offset 0x202 is the magic number of the boot header, 0x20e the offset of the version string.
	if n < 0x210 || string(head[0x202:0x206]) != "HdrS" {
		return "", fault.New(fault.Unsupported, "it is not a bzImage of x86")
	}
	at := 0x200 + int(binary.LittleEndian.Uint16(head[0x20e:]))
	text, _, ended := bytes.Cut(head[min(at, n):], []byte{0})
	release, _, _ := strings.Cut(string(text), " ")
	if !ended || release == "" || strings.ContainsRune(release, '/') {
		return "", fault.New(fault.Unsupported, "it contains no release")
	}
	return release, nil
}

// readIndexes parses the text of modules.dep, and reads modules.builtin if it exists.
func (k *kernel) readIndexes(dep string) {
	for line := range strings.Lines(dep) {
		if file, needs, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			k.needs[file] = strings.Fields(needs)
			k.pathOf[initramfs.Module(file)] = file
		}
	}
	builtIn, err := os.ReadFile(filepath.Join(k.dir, "modules.builtin"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(builtIn)) {
		k.builtIn[initramfs.Module(strings.TrimSpace(line))] = true
	}
}

// deviceModules are the modules for the VM's devices. Checksum code is built in or a module; each file
// system requests it by an alias, which no program in the VM resolves.
var (
	deviceModules = []string{"virtio_pci", "virtio_scsi", "sd_mod", "virtio_console"}
	checksums     = []string{"crc32c_generic", "crc32c_cryptoapi", "xxhash_generic", "sha256_generic", "blake2b_generic"}
)

// modulesToLoad returns the paths of the modules that the VM loads, in order. It fails if a module for
// the VM's devices or a file system is missing.
func (k *kernel) modulesToLoad(volumes []convert.Volume) (out []string, err error) {
	names := deviceModules
	for _, v := range volumes {
		fs, err := driverOf(v.Kind)
		if err != nil {
			return nil, err
		}
		names = append(names, fs)
	}
	// Kernels differ in the names of these modules, so missing ones are not an error.
	for _, name := range checksums {
		if k.pathOf[name] != "" {
			out = k.appendModule(out, name)
		}
	}
	for _, name := range names {
		if k.pathOf[name] == "" && !k.builtIn[name] {
			return nil, fault.New(fault.NotFound, "kernel %s has no module %s", k.release, name)
		}
		out = k.appendModule(out, name)
	}
	return out, nil
}

// appendModule appends a module after all its dependencies, without duplicates. A built-in driver adds
// nothing.
func (k *kernel) appendModule(list []string, name string) []string {
	file := k.pathOf[name]
	if file == "" {
		return list // built in
	}
	// modules.dep lists the deepest dependency last, and it must be loaded first.
	needs := slices.Clone(k.needs[file])
	slices.Reverse(needs)
	for _, each := range append(needs, file) {
		if !slices.Contains(list, each) {
			list = append(list, each)
		}
	}
	return list
}
