package testboot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/confine"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/qcow2"
)

// addSet adds files that QEMU inherits, and returns the path by which QEMU opens them.
func (m *machine) addSet(name string, files ...*os.File) (path string) {
	m.sets = append(m.sets, confine.FileSet{Name: name, Files: files})
	return confine.SetPath(len(m.sets) - 1)
}

// closeSets closes the files if QEMU is not started.
func (m *machine) closeSets() {
	for _, s := range m.sets {
		s.Close()
	}
	m.sets = nil
}

// openImage opens an image with its backing files, and returns QEMU's options. QEMU
// inherits descriptors instead of paths, because its user may not have access to the
// files.
func (m *machine) openImage(path, format string) (string, error) {
	switch format {
	case "raw":
		return m.openLayer("", path, format)
	case "qcow2":
		return m.openChain(path)
	}
	return "", fault.New(fault.Unsupported, "image %s has the format %s: trial boots support only raw and qcow2", path, format).
		WithHint("convert it, and set the new image in the domain: decamp convert %s NEW.qcow2", fault.Quote(path))
}

// openChain returns the options for a qcow2 image and its backing files.
func (m *machine) openChain(path string) (string, error) {
	top, err := qcow2.OpenSource(path, qcow2.SourceOptions{Backing: qcow2.OpenFile})
	if err != nil {
		return "", fmt.Errorf("image %s: %w", path, err)
	}
	// Each file of the chain becomes options with the prefix "backing." per level.
	layers := top.Layers()
	if err := top.Close(); err != nil {
		return "", err
	}
	var options []string
	for i, l := range layers {
		o, err := m.openLayer(strings.Repeat("backing.", i), l.Path, l.Format)
		if err != nil {
			return "", err
		}
		options = append(options, o)
	}
	return strings.Join(options, ","), nil
}

// openLayer opens one file of an image, and returns its options with the given prefix.
func (m *machine) openLayer(prefix, path, format string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // opening a pipe would wait for its writer
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", fault.New(fault.Denied, "%w", err).WithHint("run this as root, or as the owner of the images")
	case err != nil:
		return "", unsupportedError("the VM's image: %w", err)
	}
	set := m.addSet(path, f)
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	driver := ""
	switch {
	case info.Mode().IsRegular():
		driver = "file"
	case info.Mode().Type() == fs.ModeDevice:
		driver = "host_device"
	default:
		return "", unsupportedError("%s is neither a file nor a block device", path)
	}
	return fmt.Sprintf("%[1]sdriver=%[2]s,%[1]sfile.driver=%[3]s,%[1]sfile.filename=%[4]s", prefix, format, driver, set), nil
}

// openFile opens a file once for each of the flags, and returns its path for QEMU. QEMU
// opens a writable file for reading first, so such a file needs both descriptors.
func (m *machine) openFile(path string, flags ...int) (string, error) {
	var files []*os.File
	for _, how := range flags {
		f, err := os.OpenFile(path, how, 0)
		if err != nil {
			confine.FileSet{Files: files}.Close()
			return "", err
		}
		files = append(files, f)
	}
	return m.addSet(path, files...), nil
}
