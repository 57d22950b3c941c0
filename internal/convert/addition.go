package convert

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/initramfs"
)

// An addition is the archive that is appended to one initramfs.
type addition struct {
	budget *budget.Budget    // limits of the conversion
	tree   tree              // files of the guest
	kernel kernel            // kernel of the initramfs
	list   *moduleList       // modules of that kernel
	state  initramfsState    // content of the initramfs so far
	files  []string          // paths of modules to add
	links  map[string]string // contents of files of network names to add, by path
	out    initramfs.Writer  // archive under construction
}

// buildArchive returns the archive compressed by gzip, which every kernel supports.
func (a *addition) buildArchive() ([]byte, error) {
	for _, file := range a.files {
		data, err := a.tree.readModule(a.budget, a.kernel, file)
		if err != nil {
			return nil, err
		}
		a.addModuleFile(unpackedName(file), data)
	}
	// Without new modules the lists of the initramfs are still valid.
	if len(a.files) > 0 {
		if err := a.addIndexes(); err != nil {
			return nil, err
		}
		a.addLoadConfig()
	}
	for _, name := range slices.Sorted(maps.Keys(a.links)) {
		a.out.DirsBelow("etc", name)
		a.out.File(name, []byte(a.links[name]))
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	_, err = z.Write(a.out.Bytes())
	err = errors.Join(err, z.Close())
	return packed.Bytes(), err
}

// addModuleFile adds a file below lib/modules/RELEASE. It does not add lib, which may be a symbolic
// link; every initramfs that loads modules has it.
func (a *addition) addModuleFile(file string, data []byte) {
	a.out.DirsBelow("lib", a.kernel.modules+"/"+file)
	a.out.File(a.kernel.modules+"/"+file, data)
}

// addIndexes adds the lists in which modprobe and udev find modules. Lists by name are copied from the
// guest and cover all its modules: missing modules remain missing, as before. Lists by file are
// generated, because the initramfs may contain modules uncompressed that are compressed in the guest.
func (a *addition) addIndexes() error {
	on, inner := a.tree.findMount(a.kernel.modules)
	for _, name := range []string{"modules.alias", "modules.alias.bin", "modules.symbols", "modules.symbols.bin", "modules.softdep",
		"modules.devname", "modules.order", "modules.builtin", "modules.builtin.bin", "modules.builtin.alias.bin", "modules.builtin.modinfo"} {
		// Old kernels and old versions of kmod lack some of the lists.
		data, err := on.ReadFile(inner+"/"+name, maxIndex)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		a.addModuleFile(name, data)
	}
	text, binary := a.makeDepFiles()
	a.addModuleFile("modules.dep", []byte(text))
	a.addModuleFile("modules.dep.bin", binary)
	return nil
}

// makeDepFiles returns modules.dep in both of its forms, with the names that files have in the
// initramfs.
func (a *addition) makeDepFiles() (text string, binary []byte) {
	var lines strings.Builder
	var index depIndex
	for _, file := range a.list.order {
		line := a.nameInside(file) + ":"
		for _, need := range a.list.needs[file] {
			line += " " + a.nameInside(need)
		}
		lines.WriteString(line + "\n")
		index.addName(initramfs.Module(file), line)
	}
	return lines.String(), index.encode()
}

// nameInside returns the path that a module will have in the initramfs.
func (a *addition) nameInside(file string) string {
	if there := a.state.modules[initramfs.Module(file)]; there != "" {
		return there
	}
	if slices.Contains(a.files, file) {
		return unpackedName(file)
	}
	return file
}

// addLoadConfig adds the configuration by which dracut or initramfs-tools load the drivers. If udev
// runs in the initramfs, it would load them by itself.
func (a *addition) addLoadConfig() {
	var names []string
	for _, name := range virtioDrivers() {
		if a.list.pathOf[name] != "" {
			names = append(names, name)
		}
	}
	switch {
	// dracut's own hooks read etc/cmdline.d, and systemd-modules-load reads etc/modules-load.d.
	case a.state.maker == "dracut":
		a.out.DirsBelow("etc", "etc/cmdline.d/90-decamp.conf")
		a.out.File("etc/cmdline.d/90-decamp.conf", []byte("rd.driver.pre="+strings.Join(names, ",")+"\n"))
		a.out.DirsBelow("etc", "etc/modules-load.d/decamp.conf")
		a.out.File("etc/modules-load.d/decamp.conf", []byte(strings.Join(names, "\n")+"\n"))
	// The file replaces the one in the initramfs, so it repeats its lines.
	case a.state.maker == "initramfs-tools":
		a.out.File("conf/modules", []byte(withLines(a.state.loadList, names)))
	}
}

// withLines returns text followed by those of the lines that it does not contain.
func withLines(text string, lines []string) string {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	for _, line := range lines {
		if !hasLine(text, line) {
			text += line + "\n"
		}
	}
	return text
}

// hasLine reports whether text contains the line, apart from surrounding spaces.
func hasLine(text, want string) bool {
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == want {
			return true
		}
	}
	return false
}
