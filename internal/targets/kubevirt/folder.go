package kubevirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// Folder implements platform.Platform for users who bring VMs into a cluster themselves. The images stay
// in the staging
// folder, which is the same folder. Folder adds the manifests, with the required commands as comments:
//
// \tweb 01/web 01-disk0.raw image, written by package dir
// \tweb-01.yaml manifests
type Folder struct {
	root string  // absolute path
	opts Options // fixed after New
}

var _ platform.Platform = (*Folder)(nil)

// String returns the platform's name for receipts and messages.
func (f *Folder) String() string { return "kubevirt " + f.root }

// Check verifies that the VM can be defined, and that the name of its file is free.
func (f *Folder) Check(_ context.Context, vm *inventory.VM) error {
	if _, err := newObjects(definitionOf(vm), f.opts); err != nil {
		return err
	}
	if err := unix.Access(f.root, unix.W_OK|unix.X_OK); err != nil {
		return ioFault(fmt.Errorf("write to %s: %w", f.root, err))
	}
	_, err := f.hasManifests(vm)
	return err
}

// Deliver writes the manifests. It replaces the manifests of an earlier delivery of the same VM.
func (f *Folder) Deliver(_ context.Context, d platform.Delivery) (platform.Receipt, error) {
	o, err := newObjects(d.Definition, f.opts)
	if err != nil {
		return platform.Receipt{}, err
	}
	if _, err := f.hasManifests(d.VM); err != nil {
		return platform.Receipt{}, err
	}
	text, _, err := Manifests(d.Definition, f.opts)
	if err != nil {
		return platform.Receipt{}, err
	}
	if err := atomicfile.Replace(f.manifestPath(d.VM), append(f.headerComment(o, d.Definition), text...), 0o644); err != nil {
		return platform.Receipt{}, ioFault(fmt.Errorf("write manifests: %w", err))
	}
	return platform.Receipt{Platform: f.String(), ID: f.manifestPath(d.VM), Name: o.vm.Metadata.Name, Warnings: o.warnings}, nil
}

// Withdraw removes the VM's manifests. A file with manifests of another VM stays.
func (f *Folder) Withdraw(_ context.Context, vm *inventory.VM) error {
	there, err := f.hasManifests(vm)
	if fault.Is(err, fault.Conflict) || err == nil && !there {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Remove(f.manifestPath(vm)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ioFault(err)
	}
	return ioFault(atomicfile.Sync(f.root))
}

// manifestPath returns the path of vm's manifests.
func (f *Folder) manifestPath(vm *inventory.VM) string {
	return filepath.Join(f.root, f.opts.objectName(vm)+".yaml")
}

// maxManifest is the number of bytes of an existing file that are read.
const maxManifest = 8 << 20

// hasManifests reports whether vm's manifests exist. A file with that name and other content is
// fault.Conflict.
func (f *Folder) hasManifests(vm *inventory.VM) (bool, error) {
	occupied := func(why error) error {
		return fault.New(fault.Conflict, "%s exists and does not belong to VM %s: %w", f.manifestPath(vm), vm.Name, why).
			WithHint("move it away, or migrate %s to another folder", fault.Quote(vm.Name))
	}
	info, err := os.Lstat(f.manifestPath(vm))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, ioFault(err)
	case !info.Mode().IsRegular():
		return false, occupied(errors.New("it is not a regular file"))
	}
	file, err := os.Open(f.manifestPath(vm))
	if err != nil {
		return false, ioFault(err)
	}
	defer file.Close()
	if err := madeOf(file, vm); err != nil {
		return false, occupied(err)
	}
	return true, nil
}

// madeOf returns an error unless all objects belong to vm and a VirtualMachine is among them.
func madeOf(manifests io.Reader, vm *inventory.VM) error {
	d := yaml.NewDecoder(io.LimitReader(manifests, maxManifest))
	for {
		var o struct {
			Kind     string
			Metadata struct{ Annotations map[string]string }
		}
		err := d.Decode(&o)
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("it defines no VirtualMachine")
		case err != nil:
			return err
		case !isMadeOf(o.Metadata.Annotations, vm):
			return errors.New("it is for another VM")
		case o.Kind == "VirtualMachine":
			return nil
		}
	}
}

// headerComment returns YAML comments with the commands that create the VM in a cluster, and the
// warnings.
func (f *Folder) headerComment(o *Objects, def targets.Definition) []byte {
	ns, name := o.vm.Metadata.Namespace, o.vm.Metadata.Name
	lines := []string{
		fmt.Sprintf("VM %s from %s, by decamp %s. These commands, in this folder, create it in a cluster with KubeVirt and CDI:", def.VM.Name, def.VM.HostName, def.Decamp),
		"", "  kubectl apply -f " + name + ".yaml",
	}
	for i, d := range o.disks {
		lines = append(lines,
			fmt.Sprintf("  kubectl -n %s wait dv/%s --for=jsonpath='{.status.phase}'=UploadReady --timeout=10m", ns, d.Metadata.Name),
			fmt.Sprintf("  virtctl -n %s image-upload dv %s --no-create --force-bind --image-path=%s", ns, d.Metadata.Name, fault.Quote(f.imagePath(o, i))))
	}
	lines = append(lines, fmt.Sprintf("  virtctl -n %s start %s", ns, name))
	if len(o.warnings) > 0 {
		lines = append(lines, "", "Differences from the source VM:", "")
	}
	for _, w := range o.warnings {
		lines = append(lines, "- "+w.Text, "  "+w.Remedy)
	}
	var out bytes.Buffer
	for _, line := range lines {
		fmt.Fprintln(&out, strings.TrimRight("# "+toPrintable(line), " "))
	}
	return out.Bytes()
}

// imagePath returns the published path of the i-th image, relative to the folder if possible.
func (f *Folder) imagePath(o *Objects, i int) string {
	final := o.images[i].Final
	if rel, err := filepath.Rel(f.root, final); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return final
}

// toPrintable replaces characters that could end a comment or control a terminal by "?".
func toPrintable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// ioFault gives errors of a file system their kind and a remedy. Other errors are returned unchanged.
func ioFault(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "%w", err).WithHint("create the folder, or name an existing one")
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.New(fault.Full, "%w", err).WithHint("free space and run the same command again")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return fault.New(fault.Denied, "%w", err).WithHint("run as a user who may write there")
	}
	return err
}
