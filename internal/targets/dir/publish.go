package dir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// Publish writes domain.xml and vm.json next to the images and renames the folder. After a crash it can
// be called
// again. Before the rename nothing is visible; after it everything is complete.
func (t *Target) Publish(_ context.Context, def targets.Definition) error {
	final := t.Folder(def.VM)
	done, err := t.Published(def)
	if done {
		return ioFault(atomicfile.Sync(t.root))
	}
	if err != nil {
		return err
	}
	partial := t.partialFolder(def.VM)
	if err := t.writeDefinition(partial, def); err != nil {
		return fmt.Errorf("publish VM %s: %w", def.VM.Name, err)
	}
	if err := syncAll(partial); err != nil {
		return fmt.Errorf("publish VM %s: %w", def.VM.Name, err)
	}
	if err := renameFolder(partial, final); err != nil {
		return err
	}
	return ioFault(atomicfile.Sync(t.root))
}

// Domain returns the domain that Publish would write, with the current paths of the images. It writes
// the file with
// EFI variables next to them, because the domain refers to it.
func (t *Target) Domain(def targets.Definition) (string, error) {
	def.Images = slices.Clone(def.Images)
	for i := range def.Images {
		def.Images[i].Final = def.Images[i].Path
	}
	opts := t.opts.Domain
	opts.nvram = t.planNVRAM(def, t.partialFolder(def.VM))
	if err := opts.nvram.write(t.partialFolder(def.VM)); err != nil {
		return "", err
	}
	domain, _, err := Domain(def, opts)
	return domain, err
}

// Published reports whether the VM's folder contains exactly the images of def. A folder with another
// VM is
// fault.Conflict.
func (t *Target) Published(def targets.Definition) (bool, error) {
	final := t.Folder(def.VM)
	r, err := ReadRecord(final)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	same := func(have RecordedImage, want targets.Image) bool {
		return have.Key == want.Key && have.Root == want.Root
	}
	if sourceID(r.Source) == sourceID(def.VM) && slices.EqualFunc(r.Images, def.Images, same) {
		return true, nil
	}
	return false, otherVMError(final)
}

// otherVMError returns the fault.Conflict for a final folder that contains another VM.
func otherVMError(final string) error {
	return fault.New(fault.Conflict, "%s contains another VM", final).
		WithHint("move it away and run the same command again: the copied images are kept")
}

// writeDefinition writes domain.xml, vm.json and the file with EFI variables. It does not sync them.
func (t *Target) writeDefinition(partial string, def targets.Definition) error {
	if err := checkImages(partial, def); err != nil {
		return err
	}
	if err := makeFolder(partial); err != nil { // a VM without disks has none yet
		return err
	}
	opts := t.opts.Domain
	opts.nvram = t.planNVRAM(def, t.Folder(def.VM))
	domain, warnings, err := Domain(def, opts)
	if err != nil {
		return err
	}
	if def.Delivered != nil && def.Delivered.EFI {
		warnings = slices.DeleteFunc(warnings, func(w inventory.Warning) bool { return w.Code == defaultVariablesCode })
	}
	of := newRecord(def, t.opts.Domain.Maps.Name(def.VM.Name), warnings)
	of.NVRAM = opts.nvram.toRecord()
	for i, img := range def.Images {
		if info, err := os.Stat(img.Path); err == nil { // the platform may have moved the file
			of.Images[i].Modified = info.ModTime()
		}
	}
	record, err := json.MarshalIndent(of, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		opts.nvram.write(partial),
		writeFile(filepath.Join(partial, "domain.xml"), []byte(domain)),
		writeFile(filepath.Join(partial, recordFile), append(record, '\n')),
	)
}

// checkImages verifies that all images have a root hash and are in partial. A platform may have moved
// the
// files of a delivered VM.
func checkImages(partial string, def targets.Definition) error {
	for _, img := range def.Images {
		if img.Root == "" {
			return fault.New(fault.Internal, "image %s was not verified", img.Path)
		}
		if filepath.Dir(img.Path) != partial {
			return fault.New(fault.Internal, "image %s is not in %s", img.Path, partial)
		}
		if _, err := os.Lstat(img.Path); err != nil && def.Delivered == nil {
			return fault.New(fault.NotFound, "the image is missing: %w", err).WithHint("migrate the VM again")
		}
	}
	return nil
}

// writeFile writes a file that other users can read. It does not sync it.
func writeFile(path string, text []byte) error { return ioFault(os.WriteFile(path, text, 0o644)) }

// syncAll syncs all files of dir and dir itself.
func syncAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ioFault(atomicfile.Sync(filepath.Join(dir, e.Name()))); err != nil {
			return err
		}
	}
	return ioFault(atomicfile.Sync(dir))
}

// renameFolder renames a partial folder. rename(2) fails if final is a file or a folder that is not
// empty; this is
// fault.Conflict.
func renameFolder(partial, final string) error {
	err := unix.Rename(partial, final)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTDIR) {
		return otherVMError(final)
	}
	if err != nil {
		return ioFault(fmt.Errorf("rename %s to %s: %w", partial, final, err))
	}
	return nil
}

// Discard removes the partial folders of imgs. It refuses paths that are not in a partial folder of t.
func (t *Target) Discard(_ context.Context, _ *inventory.VM, imgs []targets.Image) error {
	var errs []error
	for _, img := range imgs {
		folder := filepath.Dir(img.Path)
		if filepath.Dir(folder) != t.root || !isPartial(filepath.Base(folder)) {
			errs = append(errs, fault.New(fault.Internal, "discard %s: not in a partial folder of %s", img.Path, t.root))
			continue
		}
		errs = append(errs, os.RemoveAll(folder))
	}
	return errors.Join(append(errs, ioFault(atomicfile.Sync(t.root)))...)
}

// ioFault gives errors of a file system their kind and a remedy. Other errors are returned unchanged.
func ioFault(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.New(fault.Full, "%w", err).WithHint("free space and run the same command again")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return fault.New(fault.Denied, "%w", err).WithHint("run as a user who may write there")
	}
	return err
}
