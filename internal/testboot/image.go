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

// addSet adds files that QEMU opens by the path that addSet returns.
func (m *machine) addSet(name string, files ...*os.File) (path string) {
	m.sets = append(m.sets, confine.FileSet{Name: name, Files: files})
	return confine.SetPath(len(m.sets) - 1)
}

// closeSets closes the files that QEMU does not get after all.
func (m *machine) closeSets() {
	for _, s := range m.sets {
		s.Close()
	}
	m.sets = nil
}

// image opens an image and its backing files, and returns QEMU's options for reading it. QEMU gets
// descriptors, and no paths: its user may not be able to open the files.
func (m *machine) image(path, format string) (string, error) {
	switch format {
	case "raw":
		return m.layer("", path, format)
	case "qcow2":
		return m.chain(path)
	}
	return "", fault.New(fault.Unsupported, "image %s has the format %s: only raw and qcow2 images are tried", path, format).
		WithHint("decamp convert --to qcow2 %s NEW.qcow2, and name that in the domain", fault.Quote(path))
}

// chain returns the options for a qcow2 image and its backing files.
func (m *machine) chain(path string) (string, error) {
	top, err := qcow2.OpenSource(path, qcow2.SourceOptions{Backing: qcow2.OpenFile})
	if err != nil {
		return "", fmt.Errorf("image %s: %w", path, err)
	}
	layers := top.Layers()
	if err := top.Close(); err != nil {
		return "", err
	}
	var options []string
	for i, l := range layers {
		o, err := m.layer(strings.Repeat("backing.", i), l.Path, l.Format)
		if err != nil {
			return "", err
		}
		options = append(options, o)
	}
	return strings.Join(options, ","), nil
}

// layer opens one file of an image, and returns the options for it.
func (m *machine) layer(prefix, path, format string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // opening a pipe would wait for its writer
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", fault.New(fault.Denied, "%w", err).WithHint("run this as root, or as the owner of the images")
	case err != nil:
		return "", unsupported("the VM's image: %w", err)
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
		return "", unsupported("%s is neither a file nor a block device", path)
	}
	return fmt.Sprintf("%[1]sdriver=%[2]s,%[1]sfile.driver=%[3]s,%[1]sfile.filename=%[4]s", prefix, format, driver, set), nil
}

// file opens a file that QEMU reads, and also writes if that is among the flags, and returns its path
// for QEMU. QEMU opens a writable file for reading first.
func (m *machine) file(path string, flags ...int) (string, error) {
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
