package vm

import (
	"context"
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate/warm"
)

// checkWarm reports VMs with data that a snapshot does not contain.
func (g *group) checkWarm(context.Context) []doctor.Finding {
	if !g.Warm {
		return nil
	}
	return g.forEachVM(func(vm *inventory.VM) doctor.Finding {
		// Independent disks and physical raw device mappings are not part of snapshots.
		why := warm.Obstacles(vm)
		if len(why) == 0 || g.Refused && warm.ExcludedDisk(vm) != nil {
			return doctor.Finding{Found: "snapshots include all disks"}
		}
		return doctor.Finding{
			Status: doctor.Failure, Found: strings.Join(why, "; "), Want: "disks and devices that a snapshot can include",
			Remedy: "migrate the VM powered off: replace --warm by --power-off",
		}
	})
}

// checkTracking reports VMs whose virtual hardware does not support change tracking.
func (g *group) checkTracking(context.Context) []doctor.Finding {
	if !g.Warm {
		return nil
	}
	return g.forEachVM(func(vm *inventory.VM) doctor.Finding {
		switch v := vm.HardwareVersion; {
		case vm.ChangeTracking:
			return doctor.Finding{Found: "change tracking is on"}
		case v == 0 || v >= warm.OldestTracked:
			return doctor.Finding{Found: "change tracking is off; decamp enables it during the migration"}
		default:
			return doctor.Finding{
				Status: doctor.Warning, Found: fmt.Sprintf("hardware version %d has no change tracking: each precopy round reads and compares all disks", v),
				Want:   fmt.Sprintf("hardware version %d or later", warm.OldestTracked),
				Remedy: fmt.Sprintf("# migrate the VM powered off, without --warm; or upgrade it while it is powered off:\ngovc vm.upgrade -version=%d -vm.uuid %s", warm.OldestTracked, vm.UUID),
			}
		}
	})
}
