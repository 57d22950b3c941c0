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

// An addition is the data appended to one initramfs.
type addition struct {
	budget *budget.Budget
	tree   tree
	k      kernel
	list   *moduleList
	in     inside
	files  []string // paths of modules to add
	links  map[string]string
	out    initramfs.Writer
}

// bytes makes the archive, packed by gzip, which every kernel unpacks.
func (a *addition) bytes() ([]byte, error) {
	for _, file := range a.files {
		data, err := a.tree.module(a.budget, a.k, file)
		if err != nil {
			return nil, err
		}
		a.put(unpackedName(file), data)
	}
	if len(a.files) > 0 {
		if err := a.index(); err != nil {
			return nil, err
		}
		a.load()
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

// put adds a file below lib/modules/RELEASE. lib itself may be a link; every initramfs that loads
// modules has it.
func (a *addition) put(file string, data []byte) {
	a.out.DirsBelow("lib", a.k.modules+"/"+file)
	a.out.File(a.k.modules+"/"+file, data)
}

// index adds the lists in which modprobe and udev find modules. Lists by name are the guest's, for all
// its modules: missing modules stay missing, as before. Lists by file are generated, because the
// initramfs may contain modules unpacked that the guest has packed.
func (a *addition) index() error {
	on, inner := a.tree.find(a.k.modules)
	for _, name := range []string{"modules.alias", "modules.alias.bin", "modules.symbols", "modules.symbols.bin", "modules.softdep",
		"modules.devname", "modules.order", "modules.builtin", "modules.builtin.bin", "modules.builtin.alias.bin", "modules.builtin.modinfo"} {
		data, err := on.ReadFile(inner+"/"+name, maxIndex)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		a.put(name, data)
	}
	text, binary := a.dependencies()
	a.put("modules.dep", []byte(text))
	a.put("modules.dep.bin", binary)
	return nil
}

// dependencies makes modules.dep in its two forms, with the names that files have there.
func (a *addition) dependencies() (text string, binary []byte) {
	var lines strings.Builder
	var index depIndex
	for _, file := range a.list.order {
		line := a.nameInside(file) + ":"
		for _, need := range a.list.needs[file] {
			line += " " + a.nameInside(need)
		}
		lines.WriteString(line + "\n")
		index.add(initramfs.Module(file), line)
	}
	return lines.String(), index.bytes()
}

// nameInside is the path that a module will have in the initramfs.
func (a *addition) nameInside(file string) string {
	if there := a.in.modules[initramfs.Module(file)]; there != "" {
		return there
	}
	if slices.Contains(a.files, file) {
		return unpackedName(file)
	}
	return file
}

// load has the initramfs load the drivers, each kind in its way. Where udev runs it would do
// so by itself.
func (a *addition) load() {
	var names []string
	for _, name := range drivers() {
		if a.list.path[name] != "" {
			names = append(names, name)
		}
	}
	switch {
	case a.in.maker == "dracut":
		a.out.DirsBelow("etc", "etc/cmdline.d/90-decamp.conf")
		a.out.File("etc/cmdline.d/90-decamp.conf", []byte("rd.driver.pre="+strings.Join(names, ",")+"\n"))
		a.out.DirsBelow("etc", "etc/modules-load.d/decamp.conf")
		a.out.File("etc/modules-load.d/decamp.conf", []byte(strings.Join(names, "\n")+"\n"))
	case a.in.maker == "initramfs-tools":
		a.out.File("conf/modules", []byte(withLines(a.in.load, names)))
	}
}

// withLines returns text with the lines that it lacks.
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

func hasLine(text, want string) bool {
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == want {
			return true
		}
	}
	return false
}
