package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// Withdraw removes the folder of a published VM. It renames the folder first, so that a crash leaves a
// partial
// folder and never an incomplete published VM. A folder with another VM, or a running VM, is
// fault.Conflict.
func (t *Target) Withdraw(_ context.Context, vm *inventory.VM) error {
	final, partial := t.Folder(vm), t.partialFolder(vm)
	r, err := ReadRecord(final)
	switch {
	case fault.Is(err, fault.NotFound): // an earlier Withdraw may have renamed it
	case err != nil:
		return err
	case sourceID(r.Source) != sourceID(vm):
		return fault.New(fault.Conflict, "%s contains another VM", final).WithHint("remove it manually if it is not required")
	default:
		if err := inUse(final, r); err != nil {
			return err
		}
		if err := unix.Rename(final, partial); err != nil {
			return ioFault(fmt.Errorf("rename %s to %s: %w", final, partial, err))
		}
	}
	if err := os.RemoveAll(partial); err != nil {
		return ioFault(fmt.Errorf("withdraw VM %s: %w", vm.Name, err))
	}
	return ioFault(atomicfile.Sync(t.root))
}

// inUse returns fault.Conflict if a process has locked one of the images. QEMU locks the images that it
// has open. It returns nil for missing images, and on file systems without locks.
func inUse(folder string, r *Record) error {
	for _, img := range r.Images {
		path := filepath.Join(folder, img.File)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) { // a delivered image was removed
			continue
		}
		if err != nil {
			return ioFault(err)
		}
		whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
		err = errors.Join(unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &whole), f.Close())
		if err == nil && whole.Type != unix.F_UNLCK {
			return fault.New(fault.Conflict, "%s is in use", path).WithHint("shut the VM down first; to find the process: fuser -v %s", fault.Quote(path))
		}
	}
	return nil // also on a file system without locks
}
