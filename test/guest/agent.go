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

// An agent is QEMU's guest agent with all it needs, by the places of its files in a guest. Unlike the
// guests' init it is a distribution's, and the real one.
type agent map[string]string // path in the guest -> file here

// agentProgram is where Debian has it.
const agentProgram = "usr/sbin/qemu-ga"

// findAgent looks at what scripts/setup.sh unpacked into dir. Its libraries are this machine's: QEMU
// needs them, too. None is no error, and guests without it are built all the same.
func findAgent(dir string) (agent, error) {
	program := filepath.Join(dir, agentProgram)
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	a := agent{agentProgram: program}
	return a, a.addNeeds(program)
}

// addNeeds adds the libraries of a program or library, and theirs, and the loader.
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
		if a[place] != "" {
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

func findLibrary(name string) (string, error) {
	for _, dir := range []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s, which QEMU's guest agent needs: run scripts/setup.sh demo", name)
}

// inputsHash returns a hash of the agent's inputs.
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

// installInto lays its files out below root.
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
