package guest

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A kernel is Debian's kernel package, unpacked.
type kernel struct {
	dir     string            // folder with the content of the package
	release string            // release: "6.1.0-56-cloud-amd64"
	modules map[string]string // path below dir by name of the module
}

// imagePath returns the file of the kernel.
func (k kernel) imagePath() string { return filepath.Join(k.dir, "boot", "vmlinuz-"+k.release) }

// modulesDir returns the folder of the modules, relative to the root of a file system.
func (k kernel) modulesDir() string { return path.Join("lib/modules", k.release) }

// modulesDep returns modules.dep for the modules, as depmod writes it: the deepest dependency is last.
func (k kernel) modulesDep(modules []string) (string, error) {
	var lines strings.Builder
	for _, m := range modules {
		needs, err := k.modulesWithNeeds(moduleName(strings.TrimSuffix(path.Base(m), ".ko")))
		if err != nil {
			return "", err
		}
		slices.Reverse(needs) // the module itself comes first then
		for i, n := range needs {
			needs[i] = strings.TrimPrefix(n, k.modulesDir()+"/")
		}
		fmt.Fprintf(&lines, "%s: %s\n", needs[0], strings.Join(needs[1:], " "))
	}
	return lines.String(), nil
}

// findKernel returns the only kernel that scripts/setup.sh unpacked into dir.
func findKernel(dir string) (kernel, error) {
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return kernel{}, fmt.Errorf("no kernel in %s: run scripts/setup.sh demo", dir)
	}
	k := kernel{dir: dir, modules: map[string]string{}}
	k.release = strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	err = filepath.WalkDir(filepath.Join(dir, "lib", "modules"), func(path string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
			rel, _ := filepath.Rel(dir, path) // path is below dir
			k.modules[moduleName(name)] = rel
		}
		return err
	})
	return k, err
}

// moduleName returns the kernel's spelling of a module's name. File names and dependencies mix "-" and
// "_".
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// modulesWithNeeds returns the paths of the named modules and of all their dependencies, in an order in
// which they can be loaded.
func (k kernel) modulesWithNeeds(names ...string) ([]string, error) {
	var order []string
	for _, name := range names {
		path, ok := k.modules[moduleName(name)]
		if !ok {
			return nil, fmt.Errorf("kernel %s has no module %s", k.release, name)
		}
		if slices.Contains(order, path) { // a dependency of an earlier module
			continue
		}
		needs, err := moduleDepends(filepath.Join(k.dir, path))
		if err != nil {
			return nil, err
		}
		first, err := k.modulesWithNeeds(needs...)
		if err != nil {
			return nil, err
		}
		for _, p := range append(first, path) {
			if !slices.Contains(order, p) {
				order = append(order, p)
			}
		}
	}
	return order, nil
}

// modulesAlias returns modules.alias for the modules, as depmod writes it.
func (k kernel) modulesAlias(modules []string) (string, error) {
	var lines strings.Builder
	for _, m := range modules {
		aliases, err := moduleInfo(filepath.Join(k.dir, m), "alias")
		if err != nil {
			return "", err
		}
		for _, alias := range aliases {
			fmt.Fprintf(&lines, "alias %s %s\n", alias, moduleName(strings.TrimSuffix(path.Base(m), ".ko")))
		}
	}
	return lines.String(), nil
}

// moduleDepends returns the modules that a module needs directly.
func moduleDepends(path string) ([]string, error) {
	lists, err := moduleInfo(path, "depends")
	if err != nil || len(lists) == 0 || lists[0] == "" {
		return nil, err
	}
	return strings.Split(lists[0], ","), nil
}

// moduleInfo returns the values of a key in a module's .modinfo section. depmod, which writes
// modules.dep and modules.alias from it, is not installed everywhere.
func moduleInfo(path, key string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read module %s: %w", path, err)
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("module %s has no .modinfo", path)
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("read module %s: %w", path, err)
	}
	var values []string
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(key+"=")); ok {
			values = append(values, string(value))
		}
	}
	return values, nil
}
