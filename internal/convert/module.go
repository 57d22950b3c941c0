package convert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/initramfs"
)

// Limits of files that are read.
const (
	maxModule = 16 << 20 // bytes of a module after decompression
	maxIndex  = 32 << 20 // bytes of a list of modules
)

// virtioDrivers returns the drivers that a guest needs to find its disk and its network on virtio.
// sd_mod is the driver of all SCSI disks; a guest that booted from NVMe may lack it.
func virtioDrivers() []string {
	return []string{"virtio_pci", "virtio_blk", "virtio_scsi", "virtio_net", "sd_mod"}
}

// A moduleList contains the modules of a kernel with their dependencies, by path.
type moduleList struct {
	needs   map[string][]string // dependencies by path: "kernel/drivers/virtio/virtio.ko.xz"
	pathOf  map[string]string   // path by module name
	order   []string            // paths in the order of the file
	builtIn map[string]bool     // built-in modules by name
}

// readModules reads modules.dep and modules.builtin of a kernel.
func (t tree) readModules(k kernel) (*moduleList, error) {
	on, inner := t.findMount(k.modules)
	dep, err := on.ReadFile(inner+"/modules.dep", maxIndex)
	if err != nil {
		return nil, err
	}
	list := &moduleList{needs: map[string][]string{}, pathOf: map[string]string{}, builtIn: map[string]bool{}}
	for line := range strings.Lines(string(dep)) {
		name, needs, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		list.needs[name] = strings.Fields(needs)
		list.pathOf[initramfs.Module(name)] = name
		list.order = append(list.order, name)
	}
	// Drivers in modules.builtin need no module.
	builtIn, err := on.ReadFile(inner+"/modules.builtin", maxIndex)
	if err != nil {
		return list, nil // old kernels have no such list
	}
	for line := range strings.Lines(string(builtIn)) {
		list.builtIn[initramfs.Module(strings.TrimSpace(line))] = true
	}
	return list, nil
}

// withDependencies returns the paths of the modules and of all their dependencies. Built-in drivers
// have no path. missing contains the drivers that the kernel does not have.
func (l *moduleList) withDependencies(names []string) (paths, missing []string) {
	for _, name := range names {
		file, ok := l.pathOf[name]
		if !ok {
			if !l.builtIn[name] {
				missing = append(missing, name)
			}
			continue
		}
		// modules.dep contains all dependencies, also indirect ones.
		for _, each := range append([]string{file}, l.needs[file]...) {
			if !slices.Contains(paths, each) {
				paths = append(paths, each)
			}
		}
	}
	return paths, missing
}

// readModule returns a module uncompressed, because the initramfs may not support its compression.
func (t tree) readModule(b *budget.Budget, k kernel, file string) ([]byte, error) {
	on, inner := t.findMount(k.modules + "/" + file)
	data, err := on.ReadFile(inner, maxModule)
	if err != nil {
		return nil, err
	}
	data, err = initramfs.Unpack(b, data, maxModule)
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", k.modules, file, err)
	}
	return data, nil
}

// unpackedName returns a module's path without the suffix of a compression.
func unpackedName(file string) string {
	before, _, found := strings.Cut(file, ".ko")
	if !found {
		return file
	}
	return before + ".ko"
}
