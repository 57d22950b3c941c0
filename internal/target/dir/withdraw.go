package dir

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/durable"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// Withdraw removes the folder of a published VM. It is renamed first, so that nobody finds half of
// it; what a crash leaves then is a partial folder. A folder that holds another VM is a Conflict.
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
		if err := unix.Rename(final, partial); err != nil {
			return ioFault(fmt.Errorf("rename %s to %s: %w", final, partial, err))
		}
	}
	if err := os.RemoveAll(partial); err != nil {
		return ioFault(fmt.Errorf("withdraw VM %s: %w", vm.Name, err))
	}
	return ioFault(durable.Sync(t.root))
}
