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

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/durable"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/target"
	"github.com/decamp/decamp/internal/target/staged"
)

// Folder takes VMs into a folder, for those who bring them into a cluster themselves:
//
//	web-01/web-01.yaml         the manifests, with the commands that are left to be typed
//	web-01/web-01-disk0.raw    the image of the first disk
//
// A folder of a VM is complete, always: it is made under another name, and renamed. It satisfies staged.Place.
type Folder struct {
	root string
	opts Options
	link func(from, to string) error // replaced by tests
}

var _ staged.Place = (*Folder)(nil)

// NewFolder returns the place that s names, an existing folder.
func NewFolder(s Spelling) (*Folder, error) {
	root, err := filepath.Abs(s.Folder)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(root)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, fault.New(fault.NotFound, "there is no folder %s", root).WithHint("make it: mkdir -p %s", fault.Quote(root))
	}
	if err != nil {
		return nil, ioFault(err)
	}
	return &Folder{root: root, opts: s.Options, link: os.Link}, s.Options.check()
}

// String names the place as people do.
func (f *Folder) String() string { return "kubevirt " + f.root }

// Check asks whether the VM can be defined, and whether its folder's name is free.
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

// final is where vm will stand, and partial where it grows.
func (f *Folder) final(vm *inventory.VM) string { return filepath.Join(f.root, Name(vm.Name)) }

func (f *Folder) partial(vm *inventory.VM) string {
	return f.final(vm) + ".partial-" + labels(vm)[sourceLabel]
}

// holds reports whether vm stands there already. What stands there and is not vm's is fault.Conflict.
func (f *Folder) holds(vm *inventory.VM) (roots []string, err error) {
	if _, err := os.Lstat(f.final(vm)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var file *os.File
	if file, err = os.Open(filepath.Join(f.final(vm), Name(vm.Name)+".yaml")); err != nil {
		return nil, f.occupied(vm, err)
	}
	defer file.Close()
	roots = []string{}
	d := yaml.NewDecoder(io.LimitReader(file, maxManifest))
	for {
		var o struct {
			Kind     string
			Metadata struct{ Annotations map[string]string }
		}
		err := d.Decode(&o)
		switch {
		case errors.Is(err, io.EOF):
			return nil, f.occupied(vm, errors.New("it defines no VirtualMachine"))
		case err != nil:
			return nil, f.occupied(vm, err)
		case !made(o.Metadata.Annotations, vm):
			return nil, f.occupied(vm, errors.New("it is of another"))
		case o.Kind == "VirtualMachine":
			return roots, nil
		}
		roots = append(roots, o.Metadata.Annotations[rootNote])
	}
}

// maxManifest bounds a file of manifests that is read, in bytes.
const maxManifest = 8 << 20

func (f *Folder) occupied(vm *inventory.VM, why error) error {
	return fault.New(fault.Conflict, "%s is there, and not of VM %s: %w", f.final(vm), vm.Name, why).
		WithHint("move it away, or migrate %s to another folder", fault.Quote(vm.Name))
}

// Deliver links the images into the VM's folder, or copies them where that cannot be, and writes the
// manifests. What a crash left of it is made anew.
func (f *Folder) Deliver(ctx context.Context, d staged.Delivery) (staged.Receipt, error) {
	o, err := objects(d.Definition, f.opts)
	if err != nil {
		return staged.Receipt{}, err
	}
	name := o.vm.Metadata.Name
	receipt := staged.Receipt{Place: f.String(), ID: f.final(d.VM), Name: name, Warnings: o.warnings}
	roots, err := f.holds(d.VM)
	if err != nil {
		return staged.Receipt{}, err
	}
	if roots != nil {
		return receipt, f.same(roots, o, d.VM)
	}
	if err := f.deliver(ctx, o, d); err != nil {
		return staged.Receipt{}, errors.Join(err, os.RemoveAll(f.partial(d.VM)))
	}
	return receipt, nil
}

// same refuses to take what was delivered before for something else.
func (f *Folder) same(roots []string, o *Objects, vm *inventory.VM) error {
	for i, want := range o.disks {
		if i >= len(roots) || roots[i] != want.Metadata.Annotations[rootNote] {
			return fault.New(fault.Conflict, "VM %s was delivered to %s before, with other disks", vm.Name, f.final(vm)).WithHint("move it away")
		}
	}
	return nil
}

func (f *Folder) deliver(ctx context.Context, o *Objects, d staged.Delivery) error {
	partial, name := f.partial(d.VM), o.vm.Metadata.Name
	if err := os.RemoveAll(partial); err != nil {
		return ioFault(err)
	}
	if err := os.Mkdir(partial, 0o755); err != nil {
		return ioFault(err)
	}
	progress := newProgress(d)
	files := make([]string, len(o.disks))
	for i, want := range o.disks {
		img, err := imageOf(d, o, want)
		if err == nil {
			files[i], err = f.place(ctx, d, img, filepath.Join(partial, want.Metadata.Name), progress)
		}
		if err != nil {
			return fmt.Errorf("disk %s: %w", want.Metadata.Name, err)
		}
		progress.finish(img.Size)
	}
	text, _, err := Manifests(d.Definition, f.opts)
	if err != nil {
		return err
	}
	text = append(preamble(o, d.Definition, files), text...)
	if err := durable.Replace(filepath.Join(partial, name+".yaml"), text, 0o644); err != nil {
		return ioFault(err)
	}
	if err := ioFault(durable.Sync(partial)); err != nil {
		return err
	}
	if err := unix.Rename(partial, f.final(d.VM)); err != nil {
		return ioFault(fmt.Errorf("rename %s to %s: %w", partial, f.final(d.VM), err))
	}
	return ioFault(durable.Sync(f.root))
}

// place puts an image at path, to which its format is appended, and returns the file's name. A link costs
// nothing; file systems that have none, or are others, get a copy.
func (f *Folder) place(ctx context.Context, d staged.Delivery, img target.Image, path string, p *progress) (string, error) {
	linked := path + "." + string(img.Format)
	if f.link(img.Path, linked) == nil {
		return filepath.Base(linked), ioFault(durable.Sync(linked))
	}
	s, err := openStream(ctx, d, img)
	if err != nil {
		return "", err
	}
	defer s.Close()
	s.tell = p.sent
	path += ".raw"
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", ioFault(err)
	}
	err = s.copy(file)
	if err == nil {
		err = file.Sync()
	}
	return filepath.Base(path), ioFault(errors.Join(err, file.Close()))
}

// copy writes what the stream has left to a new file, and leaves holes where there are zeros.
func (s *stream) copy(file *os.File) error {
	if err := file.Truncate(s.size()); err != nil {
		return err
	}
	buf := make([]byte, step)
	for at := int64(0); ; {
		n, err := io.ReadFull(s, buf)
		if n > 0 && len(bytes.TrimLeft(buf[:n], "\x00")) > 0 {
			if _, err := file.WriteAt(buf[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Withdraw removes the VM's folder. One that is not of this VM stays.
func (f *Folder) Withdraw(_ context.Context, vm *inventory.VM) error {
	roots, err := f.holds(vm)
	switch {
	case fault.Is(err, fault.Conflict): // not ours
	case err != nil:
		return err
	case roots != nil:
		if err := unix.Rename(f.final(vm), f.partial(vm)); err != nil {
			return ioFault(fmt.Errorf("withdraw VM %s: %w", vm.Name, err))
		}
	}
	return ioFault(errors.Join(os.RemoveAll(f.partial(vm)), durable.Sync(f.root)))
}

// preamble are comments that say how the VM gets into a cluster, and what is not as it was.
func preamble(o *Objects, def target.Definition, files []string) []byte {
	ns, name := o.vm.Metadata.Namespace, o.vm.Metadata.Name
	lines := []string{
		fmt.Sprintf("VM %s from %s, by decamp %s. This has it run in a cluster with KubeVirt and CDI:", def.VM.Name, def.VM.HostName, def.Decamp),
		"", "  kubectl apply -f " + name + ".yaml",
	}
	for i, d := range o.disks {
		lines = append(lines,
			fmt.Sprintf("  kubectl -n %s wait dv/%s --for=jsonpath='{.status.phase}'=UploadReady --timeout=10m", ns, d.Metadata.Name),
			fmt.Sprintf("  virtctl -n %s image-upload dv %s --no-create --force-bind --image-path=%s", ns, d.Metadata.Name, fault.Quote(files[i])))
	}
	lines = append(lines, fmt.Sprintf("  virtctl -n %s start %s", ns, name), "")
	for _, w := range o.warnings {
		lines = append(lines, "Note: "+w.Text+".", "  "+w.Remedy)
	}
	var out bytes.Buffer
	for _, line := range lines {
		fmt.Fprintln(&out, strings.TrimRight("# "+printable(line), " "))
	}
	return out.Bytes()
}

// ioFault gives the errors of a file system their kind.
func ioFault(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.New(fault.Full, "%w", err).WithHint("make room and run the same command again")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return fault.New(fault.Denied, "%w", err).WithHint("run as a user who may write there")
	}
	return err
}
