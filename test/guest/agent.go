package guest

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// An agent is QEMU's guest agent with all its libraries: it maps paths in a guest to files of this
// machine. Unlike the guests' init, it is the program of a distribution.
type agent map[string]string // path in the guest -> file here

// agentProgram is the path of the agent in Debian's package.
const agentProgram = "usr/sbin/qemu-ga"

// findAgent returns the agent that scripts/setup.sh unpacked into dir, with the libraries of this
// machine, which QEMU needs as well. A missing agent is no error: the result is nil.
func findAgent(dir string) (agent, error) {
	program := filepath.Join(dir, agentProgram)
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // guests without the agent are built
	}
	a := agent{agentProgram: program}
	return a, a.addNeeds(program)
}

// addNeeds adds the libraries that a program or library needs, recursively, and the dynamic loader.
func (a agent) addNeeds(file string) error {
	f, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	defer f.Close()
	needs, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	for _, name := range append(needs, "ld-linux-x86-64.so.2") {
		place := "lib/" + name
		if name == "ld-linux-x86-64.so.2" {
			place = "lib64/" + name
		}
		if a[place] != "" { // added for another library
			continue
		}
		if a[place], err = findLibrary(name); err != nil {
			return err
		}
		if err := a.addNeeds(a[place]); err != nil {
			return err
		}
	}
	return nil
}

// findLibrary returns the path of a shared library on this machine.
func findLibrary(name string) (string, error) {
	for _, dir := range []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s, which QEMU's guest agent needs: run scripts/setup.sh demo", name)
}

// inputsHash returns names, sizes and times of the agent's files, which changes if any of them changes.
func (a agent) inputsHash() (string, error) {
	var key string
	for _, place := range slices.Sorted(maps.Keys(a)) {
		info, err := os.Stat(a[place])
		if err != nil {
			return "", err
		}
		key += fmt.Sprintln(place, info.Size(), info.ModTime().UnixNano())
	}
	return key, nil
}

// installInto copies the files below root, as executables.
func (a agent) installInto(root string) error {
	for place, file := range a {
		to := filepath.Join(root, place)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := copyFile(file, to); err != nil {
			return err
		}
		if err := os.Chmod(to, 0o755); err != nil {
			return err
		}
	}
	return nil
}
