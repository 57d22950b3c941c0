package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"unsafe"
)

// modulesList is the file of the initramfs with the names of the modules to load, as with
// initramfs-tools.
const modulesList = "/conf/modules"

// loadModules loads the modules of modulesList, each after its dependencies in modules.dep. As with
// modprobe, a missing module is skipped, and a module without a device is no error.
func loadModules() error {
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
	for name := range strings.FieldsSeq(string(names)) {
		for _, file := range filesOf(string(index), name) {
			err := loadModule(dir + file)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("load %s: %w", file, err)
			}
		}
	}
	return nil
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
