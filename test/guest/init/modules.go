package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// modulesList is the file of the initramfs with the names of the modules to load, as with
// initramfs-tools.
const modulesList = "/conf/modules"

// loadModules loads the modules of modulesList, each after its dependencies in modules.dep. As with
// modprobe, a missing module is skipped, and a module without a device is no error. Modules that are not
// needed are skipped, because an emulated processor needs up to half a second for one.
func loadModules(root string) error {
	names, err := os.ReadFile(modulesList)
	if err != nil {
		return err
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	dir := "/lib/modules/" + strings.TrimSpace(string(release)) + "/"
	index, err := os.ReadFile(dir + "modules.dep")
	if err != nil {
		return err
	}
	aliases, err := os.ReadFile(dir + "modules.alias")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(names)) {
		if !isNeeded(devicesOf(string(aliases), name), root) {
			continue
		}
		for _, file := range filesOf(string(index), name) {
			err := loadModule(dir + file)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("load %s: %w", file, err)
			}
		}
	}
	return nil
}

// devicesOf returns the patterns of the devices that a module serves.
func devicesOf(aliases, name string) (patterns []string) {
	for line := range strings.Lines(aliases) {
		if words := strings.Fields(line); len(words) == 3 && words[2] == strings.ReplaceAll(name, "-", "_") {
			patterns = append(patterns, words[1])
		}
	}
	return patterns
}

// isNeeded reports whether a module must be loaded. The drivers of PCI and virtio devices are needed if
// the VM has such a device, and those of disks only until the root device exists.
func isNeeded(patterns []string, root string) bool {
	onBus := func(pattern string) bool {
		return strings.HasPrefix(pattern, "pci:") || strings.HasPrefix(pattern, "virtio:")
	}
	if len(patterns) == 0 || !slices.ContainsFunc(patterns, onBus) {
		return true
	}
	files, _ := filepath.Glob("/sys/bus/pci/devices/*/modalias")
	virtio, _ := filepath.Glob("/sys/bus/virtio/devices/*/modalias")
	for _, file := range append(files, virtio...) {
		device := readLine(file)
		matches := func(pattern string) bool {
			ok, err := path.Match(pattern, device)
			return ok && err == nil
		}
		const disks = "bc01" // PCI base class of disk controllers
		if slices.ContainsFunc(patterns, matches) && !(strings.Contains(device, disks) && rootAppears(root)) {
			return true
		}
	}
	return false
}

// rootAppears reports whether the root device exists. With a driver of SCSI disks it waits for a second,
// as disks appear after their driver.
func rootAppears(root string) bool {
	hosts, _ := filepath.Glob("/sys/class/scsi_host/*")
	for end := time.Now().Add(time.Second); findRoot(root) == ""; time.Sleep(50 * time.Millisecond) {
		if len(hosts) == 0 || time.Now().After(end) {
			return false
		}
	}
	return true
}

// filesOf returns the files of a module's dependencies and of the module, in the order of loading. A
// line of modules.dep lists the deepest dependency last.
func filesOf(index, name string) []string {
	for line := range strings.Lines(index) {
		file, needs, _ := strings.Cut(strings.TrimSpace(line), ":")
		base := file[strings.LastIndexByte(file, '/')+1:]
		if strings.ReplaceAll(strings.TrimSuffix(base, ".ko"), "-", "_") == strings.ReplaceAll(name, "-", "_") {
			files := append([]string{file}, strings.Fields(needs)...)
			slices.Reverse(files) // the deepest dependency first
			return files
		}
	}
	return nil
}

// loadModule loads a module. A loaded module is no error.
func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	noParams := []byte{0}   // an empty string
	const finitModule = 313 // amd64
	_, _, errno := syscall.Syscall(finitModule, f.Fd(), uintptr(unsafe.Pointer(&noParams[0])), 0)
	if errno != 0 && errno != syscall.EEXIST {
		return errno
	}
	return nil
}
