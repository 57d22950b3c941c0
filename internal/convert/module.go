package convert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/initramfs"
)

// maxModule bounds a module unpacked, and maxIndex the lists of modules, in bytes.
const (
	maxModule = 16 << 20
	maxIndex  = 32 << 20
)

// drivers are what a guest needs to find its disk and its network on virtio. sd_mod is that
// of all SCSI disks; a guest that booted from NVMe may lack it.
func drivers() []string {
	return []string{"virtio_pci", "virtio_blk", "virtio_scsi", "virtio_net", "sd_mod"}
}

// A moduleList is the content of modules.dep: each module with its dependencies, by path.
type moduleList struct {
	needs   map[string][]string // dependencies by path: "kernel/drivers/virtio/virtio.ko.xz"
	path    map[string]string   // path by name
	order   []string            // paths in the order of the file
	builtIn map[string]bool     // built-in modules by name
}

// modules reads which modules a kernel has.
func (t tree) modules(k kernel) (*moduleList, error) {
	on, inner := t.find(k.modules)
	dep, err := on.ReadFile(inner+"/modules.dep", maxIndex)
	if err != nil {
		return nil, err
	}
	list := &moduleList{needs: map[string][]string{}, path: map[string]string{}, builtIn: map[string]bool{}}
	for line := range strings.Lines(string(dep)) {
		name, needs, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		list.needs[name] = strings.Fields(needs)
		list.path[initramfs.Module(name)] = name
		list.order = append(list.order, name)
	}
	builtIn, err := on.ReadFile(inner+"/modules.builtin", maxIndex)
	if err != nil {
		return list, nil // kernels of long ago have no such list
	}
	for line := range strings.Lines(string(builtIn)) {
		list.builtIn[initramfs.Module(strings.TrimSpace(line))] = true
	}
	return list, nil
}

// closure returns the paths of modules and of all they need. What is built in needs none; a
// driver that the kernel does not have at all is in missing.
func (l *moduleList) closure(names []string) (paths, missing []string) {
	for _, name := range names {
		file, ok := l.path[name]
		if !ok {
			if !l.builtIn[name] {
				missing = append(missing, name)
			}
			continue
		}
		for _, each := range append([]string{file}, l.needs[file]...) {
			if !slices.Contains(paths, each) {
				paths = append(paths, each)
			}
		}
	}
	return paths, missing
}

// module reads a module and unpacks it: whether the initramfs could do that is not known.
func (t tree) module(b *budget.Budget, k kernel, file string) ([]byte, error) {
	on, inner := t.find(k.modules + "/" + file)
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

// unpackedName is a module's path without the suffix of a compressor.
func unpackedName(file string) string {
	before, _, found := strings.Cut(file, ".ko")
	if !found {
		return file
	}
	return before + ".ko"
}
