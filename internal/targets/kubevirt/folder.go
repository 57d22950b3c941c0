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

// Folder is for those who bring VMs into a cluster themselves. It leaves the images on the stage, which
// is the same folder, and writes the manifests there, with the commands that are left to be typed:
//
//	web 01/web 01-disk0.raw    the stage's
//	web-01.yaml                ours
//
// It satisfies platform.Place.
type Folder struct {
	root string
	opts Options
}

var _ platform.Place = (*Folder)(nil)

// String names the place as people do.
func (f *Folder) String() string { return "kubevirt " + f.root }

// Check asks whether the VM can be defined, and whether its file's name is free.
func (f *Folder) Check(_ context.Context, vm *inventory.VM) error {
	if _, err := objects(undelivered(vm), f.opts); err != nil {
		return err
	}
	if err := unix.Access(f.root, unix.W_OK|unix.X_OK); err != nil {
		return ioFault(fmt.Errorf("write to %s: %w", f.root, err))
	}
	_, err := f.holds(vm)
	return err
}

// Deliver writes the manifests, in the place of those that an earlier delivery wrote.
func (f *Folder) Deliver(_ context.Context, d platform.Delivery) (platform.Receipt, error) {
	o, err := objects(d.Definition, f.opts)
	if err != nil {
		return platform.Receipt{}, err
	}
	if _, err := f.holds(d.VM); err != nil {
		return platform.Receipt{}, err
	}
	text, _, err := Manifests(d.Definition, f.opts)
	if err != nil {
		return platform.Receipt{}, err
	}
	if err := atomicfile.Replace(f.file(d.VM), append(f.preamble(o, d.Definition), text...), 0o644); err != nil {
		return platform.Receipt{}, ioFault(fmt.Errorf("write manifests: %w", err))
	}
	return platform.Receipt{Place: f.String(), ID: f.file(d.VM), Name: o.vm.Metadata.Name, Warnings: o.warnings}, nil
}

// Withdraw removes the manifests. Those that are not of this VM stay.
func (f *Folder) Withdraw(_ context.Context, vm *inventory.VM) error {
	there, err := f.holds(vm)
	if fault.Is(err, fault.Conflict) || err == nil && !there {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Remove(f.file(vm)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ioFault(err)
	}
	return ioFault(atomicfile.Sync(f.root))
}

// file is where vm's manifests are.
func (f *Folder) file(vm *inventory.VM) string {
	return filepath.Join(f.root, f.opts.name(vm)+".yaml")
}

// maxManifest bounds a file of manifests that is read, in bytes.
const maxManifest = 8 << 20

// holds reports whether vm's manifests are there already. What has their name and is not vm's is
// fault.Conflict.
func (f *Folder) holds(vm *inventory.VM) (bool, error) {
	occupied := func(why error) error {
		return fault.New(fault.Conflict, "%s is there, and not of VM %s: %w", f.file(vm), vm.Name, why).
			WithHint("move it away, or migrate %s to another folder", fault.Quote(vm.Name))
	}
	info, err := os.Lstat(f.file(vm))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, ioFault(err)
	case !info.Mode().IsRegular():
		return false, occupied(errors.New("it is no file"))
	}
	file, err := os.Open(f.file(vm))
	if err != nil {
		return false, ioFault(err)
	}
	defer file.Close()
	if err := madeOf(file, vm); err != nil {
		return false, occupied(err)
	}
	return true, nil
}

// madeOf returns an error unless manifests are those of vm: all objects, and a VirtualMachine at their end.
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
		case !made(o.Metadata.Annotations, vm):
			return errors.New("it is of another")
		case o.Kind == "VirtualMachine":
			return nil
		}
	}
}

// preamble are comments that say how the VM gets into a cluster, and what is not as it was.
func (f *Folder) preamble(o *Objects, def targets.Definition) []byte {
	ns, name := o.vm.Metadata.Namespace, o.vm.Metadata.Name
	lines := []string{
		fmt.Sprintf("VM %s from %s, by decamp %s. In this folder, these bring it into a cluster with KubeVirt and CDI:", def.VM.Name, def.VM.HostName, def.Decamp),
		"", "  kubectl apply -f " + name + ".yaml",
	}
	for i, d := range o.disks {
		lines = append(lines,
			fmt.Sprintf("  kubectl -n %s wait dv/%s --for=jsonpath='{.status.phase}'=UploadReady --timeout=10m", ns, d.Metadata.Name),
			fmt.Sprintf("  virtctl -n %s image-upload dv %s --no-create --force-bind --image-path=%s", ns, d.Metadata.Name, fault.Quote(f.image(o, i))))
	}
	lines = append(lines, fmt.Sprintf("  virtctl -n %s start %s", ns, name))
	if len(o.warnings) > 0 {
		lines = append(lines, "", "What is not as it was on VMware:", "")
	}
	for _, w := range o.warnings {
		lines = append(lines, "- "+w.Text, "  "+w.Remedy)
	}
	var out bytes.Buffer
	for _, line := range lines {
		fmt.Fprintln(&out, strings.TrimRight("# "+printable(line), " "))
	}
	return out.Bytes()
}

// image is the file of the i-th disk once the VM is published, as seen from the folder.
func (f *Folder) image(o *Objects, i int) string {
	final := o.images[i].Final
	if rel, err := filepath.Rel(f.root, final); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return final
}

// printable is a text that stays within its line of comment, whoever reads it.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// ioFault gives the errors of a file system their kind.
func ioFault(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "%w", err).WithHint("make the folder, or name one that is there")
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.New(fault.Full, "%w", err).WithHint("make room and run the same command again")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return fault.New(fault.Denied, "%w", err).WithHint("run as a user who may write there")
	}
	return err
}
