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

// modulesList names the modules that the initramfs is to load, as initramfs-tools has it.
const modulesList = "/conf/modules"

// loadModules loads the modules of modulesList, each after its dependencies in modules.dep. As with
// modprobe, a missing module is skipped, and a module that finds no device is not an error.
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

// filesOf returns a module's file after the files of its dependencies. A line of modules.dep lists
// the deepest dependency last.
func filesOf(index, name string) []string {
	for line := range strings.Lines(index) {
		file, needs, _ := strings.Cut(strings.TrimSpace(line), ":")
		base := file[strings.LastIndexByte(file, '/')+1:]
		if strings.ReplaceAll(strings.TrimSuffix(base, ".ko"), "-", "_") == strings.ReplaceAll(name, "-", "_") {
			files := append([]string{file}, strings.Fields(needs)...)
			slices.Reverse(files)
			return files
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	noParams := []byte{0}
	const finitModule = 313 // amd64
	_, _, errno := syscall.Syscall(finitModule, f.Fd(), uintptr(unsafe.Pointer(&noParams[0])), 0)
	if errno != 0 && errno != syscall.EEXIST {
		return errno
	}
	return nil
}
