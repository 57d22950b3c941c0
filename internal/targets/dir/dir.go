// Package dir implements the target that is a folder. Each VM is a subfolder with its images, their manifests,
// a libvirt domain and vm.json:
//
//	web01/web01-disk0.raw            the first disk
//	web01/web01-disk0.raw.manifest   the hash of each of its chunks
//	web01/domain.xml                 for virsh define
//	web01/vm.json                    source VM, results of detection, warnings
//	web01/web01_VARS.fd              EFI boot entries of the VM, for the firmware of this host
//
// Before Publish the files are in a partial folder such as web01.partial-9f86d081. Publish renames it,
// which is atomic, so a folder with the name of a VM is always complete. The name of the partial folder
// contains a hash of the source VM's identity, so that a resumed run finds its own files and no others.
//
// The domain has the compat profile by default: hardware that QEMU has in common with VMware, so that the
// guest boots with its present drivers. Domain adds a warning for each exception. The profile targets.Virtio
// has virtio-scsi and virtio-net, for a converted guest.
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

// Options configure a Target.
type Options struct {
	Format targets.Format // format of new images; raw if empty
	Domain DomainOptions  // choices for domains

	firmwareRoot string // root of the paths under which OVMF is searched; "/" except in tests
}

// Target stores VMs in subfolders of one folder. It implements targets.Target.
type Target struct {
	root string                          // absolute path of the folder
	opts Options                         // fixed after New
	free func(dir string) (int64, error) // returns the free bytes of a folder's file system; replaced by tests
}

var _ targets.Target = (*Target)(nil)

// New returns the target that stores VMs below root. The folder must exist, else the error is
// fault.NotFound.
func New(root string, opts Options) (*Target, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.New(fault.NotFound, "target dir:%s does not exist", abs).WithHint("create it: mkdir -p %s", fault.Quote(abs))
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

// Plan returns the names of vm's images. It returns fault.Conflict if the VM's folder exists, or if an
// unfinished VM has the same folder name, and fault.Full if the disk space is insufficient. It also
// rejects
// controllers that QEMU lacks, and a folder that is not writable.
func (t *Target) Plan(_ context.Context, vm *inventory.VM) ([]targets.Image, error) {
	if err := checkHardware(vm); err != nil {
		return nil, err
	}
	if err := t.checkStorages(vm); err != nil {
		return nil, err
	}
	name := t.folderName(vm)
	if err := t.checkFolder(vm, name); err != nil {
		return nil, err
	}
	if err := unix.Access(t.root, unix.W_OK|unix.X_OK); err != nil {
		return nil, ioFault(fmt.Errorf("write to %s: %w", t.root, err))
	}
	if err := t.checkSpace(vm); err != nil {
		return nil, err
	}
	return t.planImages(vm), nil
}

// planImages returns an image for each disk of vm, in the order of vm.Disks. It accesses no files.
func (t *Target) planImages(vm *inventory.VM) []targets.Image {
	images := make([]targets.Image, len(vm.Disks))
	for i, d := range vm.Disks {
		file := fmt.Sprintf("%s-disk%d.%s", t.folderName(vm), i, t.opts.Format)
		path := filepath.Join(t.partialFolder(vm), file)
		images[i] = targets.Image{
			Key: d.Key, Path: path, Manifest: path + ".manifest",
			Final: filepath.Join(t.Folder(vm), file), Format: t.opts.Format, Size: d.Capacity,
		}
	}
	return images
}

// partialFolder returns the folder for vm's files before it is published.
func (t *Target) partialFolder(vm *inventory.VM) string {
	return filepath.Join(t.root, t.folderName(vm)+partialInfix+sourceID(vm))
}

const (
	partialInfix     = ".partial-"           // between the VM's name and its sourceID
	partialSuffixLen = len(partialInfix) + 8 // length of partialInfix with the eight hex digits of a sourceID
)

// sourceID returns eight hex digits that identify a source VM: a hash of its reference and UUIDs.
func sourceID(vm *inventory.VM) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", vm.Ref, vm.InstanceUUID, vm.UUID))
	return hex.EncodeToString(sum[:4])
}

// checkStorages returns fault.Unsupported if the map assigns a storage to one of vm's datastores. A
// folder has
// no storages: all images of a VM are in its folder.
func (t *Target) checkStorages(vm *inventory.VM) error {
	for _, d := range vm.Disks {
		from := namemap.Datastore(d)
		if to := t.opts.Domain.Maps.Storage(from); to != "" {
			return fault.New(fault.Unsupported, "disk %d: the map assigns storage %[3]s to datastore %[2]s, and a folder has no storages", d.Key, from, to).
				WithHint("remove %s from the map's storages, or set a folder on that storage: --to dir:FOLDER", fault.Quote(from))
		}
	}
	return nil
}

// checkFolder returns fault.Conflict if the final folder exists, or if another VM's partial folder has
// the name.
func (t *Target) checkFolder(vm *inventory.VM, name string) error {
	final := filepath.Join(t.root, name)
	if _, err := os.Lstat(final); err == nil {
		return folderConflict(vm, final)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	others, err := listPartials(t.root, name)
	if err != nil {
		return err
	}
	for _, other := range others {
		if other != t.partialFolder(vm) {
			return fault.New(fault.Conflict, "another run migrates a VM to the name %s: %s", name, other).
				WithHint("wait until that run has ended, or remove %s if the run does not continue", other)
		}
	}
	return nil
}

// folderConflict returns the error for an existing final folder. The folder may contain vm itself, from
// a run
// without a journal here; the message then differs.
func folderConflict(vm *inventory.VM, final string) error {
	r, err := ReadRecord(final)
	if err != nil || sourceID(r.Source) != sourceID(vm) {
		return fault.New(fault.Conflict, "%s already exists", final).
			WithHint("move it away, or migrate %q to another folder", vm.Name)
	}
	return fault.New(fault.Conflict, "%s already exists: it contains an earlier migration of %q", final, vm.Name).
		WithHint("verify it with: decamp verify %s; to migrate it again, move that folder away first", fault.Quote(final))
}

// listPartials returns the paths of the partial folders in root of all VMs with this folder name.
func listPartials(root, name string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		if isPartial(e.Name()) && e.Name()[:len(e.Name())-partialSuffixLen] == name {
			found = append(found, filepath.Join(root, e.Name()))
		}
	}
	return found, nil
}

// isPartial reports whether a folder name is that of a partial folder.
func isPartial(folder string) bool {
	at := len(folder) - partialSuffixLen
	if at <= 0 || folder[at:at+len(partialInfix)] != partialInfix {
		return false
	}
	_, err := hex.DecodeString(folder[at+len(partialInfix):])
	return err == nil
}

// checkSpace returns fault.Full if the free space is less than the bytes that the VM's thin disks use
// on their
// datastores. Thick disks are not counted, because their images are sparse and the amount of zeros is
// unknown before the copy.
func (t *Target) checkSpace(vm *inventory.VM) error {
	need := thinBytes(vm)
	have, err := t.free(t.root)
	if err != nil {
		return err
	}
	have += allocatedBytes(t.partialFolder(vm))
	if need > have {
		return fault.New(fault.Full, "VM %s requires %d MiB in %s, %d MiB are free", vm.Name, need>>20, t.root, have>>20).
			WithHint("free %d MiB, or choose another folder", (need-have)>>20+1)
	}
	return nil
}

// thinBytes returns the bytes that the VM's thin disks use on their datastores.
func thinBytes(vm *inventory.VM) int64 {
	var n int64
	for _, d := range vm.Disks {
		if d.Thin && d.Used > 0 {
			n += d.Used
		}
	}
	return n
}

// Need returns bounds for the bytes that vm's images will add. least is the size of its thin disks on
// their
// datastores, most the capacity of all disks, each without the bytes already copied.
func (t *Target) Need(vm *inventory.VM) (least, most int64) {
	for _, d := range vm.Disks {
		most += d.Capacity
	}
	have := allocatedBytes(t.partialFolder(vm))
	return max(thinBytes(vm)-have, 0), max(most-have, 0)
}

// Room returns the free bytes, and the device number of the file system. Targets with the same device
// share the space.
func (t *Target) Room() (free int64, device uint64, err error) {
	var s unix.Stat_t
	if err := unix.Stat(t.root, &s); err != nil {
		return 0, 0, ioFault(fmt.Errorf("target dir:%s: %w", t.root, err))
	}
	free, err = t.free(t.root)
	return free, s.Dev, err
}

// Holds reports whether vm was published in this folder. It compares UUIDs.
func (t *Target) Holds(vm *inventory.VM) bool {
	r, err := ReadRecord(t.Folder(vm))
	return err == nil && r.Source.UUID == vm.UUID && r.Source.InstanceUUID == vm.InstanceUUID
}

// Folder returns the path of vm's folder after it is published.
func (t *Target) Folder(vm *inventory.VM) string { return filepath.Join(t.root, t.folderName(vm)) }

// folderName returns the name of vm's folder, which is also the prefix of its files.
func (t *Target) folderName(vm *inventory.VM) string {
	return SafeName(t.opts.Domain.Maps.Name(vm.Name))
}

// freeBytes returns the bytes that an unprivileged user can allocate in the file system of dir.
func freeBytes(dir string) (int64, error) {
	s, err := diskspace.At(dir)
	return s.Available, err
}

// allocatedBytes returns the bytes that the files in dir occupy. It returns 0 if dir does not exist.
func allocatedBytes(dir string) int64 {
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
