// Package dir is the target that needs nothing but a folder: every VM becomes a folder
// with its images, their manifests, a libvirt domain and vm.json.
//
//	web01/web01-disk0.raw            the first disk
//	web01/web01-disk0.raw.manifest   the hash of each of its chunks
//	web01/domain.xml                 for virsh define
//	web01/vm.json                    where it came from, what was found in it, warnings
//	web01/web01_VARS.fd              of EFI: the boot entries that go with it, for this machine's firmware
//
// Until Publish the same files stand in a folder of their own beside it, such as
// web01.partial-9f86d081. Publish renames that folder, which is atomic: a folder named
// after a VM is complete, always. The partial folder's name carries the source VM's
// identity, so that a run started again finds its own and no other VM's.
//
// The domain is the compat profile: the hardware that QEMU has in common with VMware,
// so that a guest boots with the drivers it has. Domain says where that cannot be. With
// target.Virtio it has virtio-scsi and virtio-net instead, for a guest that was converted.
package dir

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/diskspace"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
)

// Options say how VMs are written.
type Options struct {
	Format targets.Format // of the images; raw if empty
	Domain DomainOptions

	firmwareRoot string // where OVMF is looked for; replaced by tests
}

// Target writes VMs into one root folder. It satisfies targets.Target.
type Target struct {
	root string
	opts Options
	free func(dir string) (int64, error) // bytes free; replaced by tests
}

var _ targets.Target = (*Target)(nil)

// New returns the target that keeps VMs below root, an existing folder.
func New(root string, opts Options) (*Target, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.New(fault.NotFound, "target dir:%s does not exist", abs).WithHint("make it: mkdir -p %s", fault.Quote(abs))
	case err != nil:
		return nil, ioFault(fmt.Errorf("target dir:%s: %w", abs, err))
	case !info.IsDir():
		return nil, fault.New(fault.NotFound, "target dir:%s is not a folder", abs).WithHint("name a folder")
	}
	if opts.Format == "" {
		opts.Format = targets.Raw
	}
	opts.firmwareRoot = cmp.Or(opts.firmwareRoot, "/")
	return &Target{root: abs, opts: opts, free: freeBytes}, nil
}

// Plan names vm's images. Two VMs that come to the same folder name are a Conflict, and
// so is a folder that is already there.
func (t *Target) Plan(_ context.Context, vm *inventory.VM) ([]targets.Image, error) {
	if err := checkHardware(vm); err != nil {
		return nil, err
	}
	if err := t.checkStorages(vm); err != nil {
		return nil, err
	}
	name := t.name(vm)
	if err := t.checkFolder(vm, name); err != nil {
		return nil, err
	}
	if err := unix.Access(t.root, unix.W_OK|unix.X_OK); err != nil {
		return nil, ioFault(fmt.Errorf("write to %s: %w", t.root, err))
	}
	if err := t.checkSpace(vm); err != nil {
		return nil, err
	}
	return t.images(vm), nil
}

// images names vm's.
func (t *Target) images(vm *inventory.VM) []targets.Image {
	images := make([]targets.Image, len(vm.Disks))
	for i, d := range vm.Disks {
		file := fmt.Sprintf("%s-disk%d.%s", t.name(vm), i, t.opts.Format)
		path := filepath.Join(t.partial(vm), file)
		images[i] = targets.Image{
			Key: d.Key, Path: path, Manifest: path + ".manifest",
			Final: filepath.Join(t.Folder(vm), file), Format: t.opts.Format, Size: d.Capacity,
		}
	}
	return images
}

// partial is the folder in which vm grows until it is published.
func (t *Target) partial(vm *inventory.VM) string {
	return filepath.Join(t.root, t.name(vm)+partialMark+identity(vm))
}

const (
	partialMark = ".partial-"
	partialTail = len(partialMark) + 8 // with the identity
)

// identity tells one source VM from any other, in eight hex digits.
func identity(vm *inventory.VM) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", vm.Ref, vm.InstanceUUID, vm.UUID))
	return hex.EncodeToString(sum[:4])
}

// checkStorages refuses a map that has disks elsewhere: a VM's images are in its folder, all of them.
func (t *Target) checkStorages(vm *inventory.VM) error {
	for _, d := range vm.Disks {
		from := namemap.Datastore(d)
		if to := t.opts.Domain.Maps.Storage(from); to != "" {
			return fault.New(fault.Unsupported, "disk %d is to go from datastore %s to storage %s, and a folder has no storages", d.Key, from, to).
				WithHint("take %s out of the map's storages, or name the folder that is on that storage: --to dir:FOLDER", fault.Quote(from))
		}
	}
	return nil
}

func (t *Target) checkFolder(vm *inventory.VM, name string) error {
	final := filepath.Join(t.root, name)
	if _, err := os.Lstat(final); err == nil {
		return taken(vm, final)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	others, err := partials(t.root, name)
	if err != nil {
		return err
	}
	for _, other := range others {
		if other != t.partial(vm) {
			return fault.New(fault.Conflict, "another VM is on its way to the name %s: %s", name, other).
				WithHint("let that run finish, or remove %s if its run was given up", other)
		}
	}
	return nil
}

// taken says what has the folder that vm would be published in. It may be vm itself: a run whose record
// is gone, or that was begun on another machine, is not known here by anything else.
func taken(vm *inventory.VM, final string) error {
	r, err := ReadRecord(final)
	if err != nil || identity(r.Source) != identity(vm) {
		return fault.New(fault.Conflict, "%s exists already", final).
			WithHint("move it away, or migrate %q to another folder", vm.Name)
	}
	return fault.New(fault.Conflict, "%s exists already: %q was moved there before", final, vm.Name).
		WithHint("prove it with: decamp verify %s; to move it once more, move that folder away", fault.Quote(final))
}

// partials lists the partial folders of VMs called name.
func partials(root, name string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		if isPartial(e.Name()) && e.Name()[:len(e.Name())-partialTail] == name {
			found = append(found, filepath.Join(root, e.Name()))
		}
	}
	return found, nil
}

// isPartial reports whether a folder's name is that of a VM that is not published.
func isPartial(folder string) bool {
	at := len(folder) - partialTail
	if at <= 0 || folder[at:at+len(partialMark)] != partialMark {
		return false
	}
	_, err := hex.DecodeString(folder[at+len(partialMark):])
	return err == nil
}

// checkSpace compares the free space with what the VM's thin disks take on their
// datastores. Thick disks are not counted: their images are sparse, and how much of
// them is zeros shows only during the copy.
func (t *Target) checkSpace(vm *inventory.VM) error {
	need := thin(vm)
	have, err := t.free(t.root)
	if err != nil {
		return err
	}
	have += allocated(t.partial(vm))
	if need > have {
		return fault.New(fault.Full, "VM %s needs %d MiB in %s, %d MiB are free", vm.Name, need>>20, t.root, have>>20).
			WithHint("free %d MiB, or choose another folder", (need-have)>>20+1)
	}
	return nil
}

// thin is what the VM's thin disks take on their datastores, in bytes.
func thin(vm *inventory.VM) int64 {
	var n int64
	for _, d := range vm.Disks {
		if d.Thin && d.Used > 0 {
			n += d.Used
		}
	}
	return n
}

// Need returns how many bytes vm will take of the room beyond those it has: at least, which
// is what its thin disks take at the source, and at most, which is all of its disks.
func (t *Target) Need(vm *inventory.VM) (least, most int64) {
	for _, d := range vm.Disks {
		most += d.Capacity
	}
	have := allocated(t.partial(vm))
	return max(thin(vm)-have, 0), max(most-have, 0)
}

// Room returns the bytes that are free, and which file system it is of: targets may share one.
func (t *Target) Room() (free int64, device uint64, err error) {
	var s unix.Stat_t
	if err := unix.Stat(t.root, &s); err != nil {
		return 0, 0, ioFault(fmt.Errorf("target dir:%s: %w", t.root, err))
	}
	free, err = t.free(t.root)
	return free, s.Dev, err
}

// Holds reports whether vm was moved here and published.
func (t *Target) Holds(vm *inventory.VM) bool {
	r, err := ReadRecord(t.Folder(vm))
	return err == nil && r.Source.UUID == vm.UUID && r.Source.InstanceUUID == vm.InstanceUUID
}

// Folder is where vm will stand.
func (t *Target) Folder(vm *inventory.VM) string { return filepath.Join(t.root, t.name(vm)) }

// name is that of vm's folder, and of what is in it.
func (t *Target) name(vm *inventory.VM) string { return SafeName(t.opts.Domain.Maps.Name(vm.Name)) }

// freeBytes is what images may take at dir.
func freeBytes(dir string) (int64, error) {
	s, err := diskspace.At(dir)
	return s.Available, err
}

// allocated is what an earlier attempt has already written to dir, in bytes.
func allocated(dir string) int64 {
	var sum int64
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		var s unix.Stat_t
		if unix.Lstat(filepath.Join(dir, e.Name()), &s) == nil {
			sum += s.Blocks * 512
		}
	}
	return sum
}
