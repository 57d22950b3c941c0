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

// Withdraw removes the folder of a published VM. It is renamed first, so that nobody finds half of
// it; what a crash leaves then is a partial folder. A folder that holds another VM is a Conflict, and so
// is a VM that runs.
func (t *Target) Withdraw(_ context.Context, vm *inventory.VM) error {
	final, partial := t.Folder(vm), t.partial(vm)
	r, err := ReadRecord(final)
	switch {
	case fault.Is(err, fault.NotFound): // an earlier Withdraw may have come so far
	case err != nil:
		return err
	case identity(r.Source) != identity(vm):
		return fault.New(fault.Conflict, "%s holds another VM", final).WithHint("remove it by hand if it is not needed")
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

// inUse is a Conflict if QEMU, which locks the images it has open, or anybody else locks one.
func inUse(folder string, r *Record) error {
	for _, img := range r.Images {
		path := filepath.Join(folder, img.File)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) { // it was delivered
			continue
		}
		if err != nil {
			return ioFault(err)
		}
		whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
		err = errors.Join(unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &whole), f.Close())
		if err == nil && whole.Type != unix.F_UNLCK {
			return fault.New(fault.Conflict, "%s is in use", path).WithHint("shut the VM down first: fuser -v %s tells who has it", fault.Quote(path))
		}
	}
	return nil // a file system without locks tells nothing
}
