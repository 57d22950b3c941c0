package warm

import (
	"fmt"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
)

// ExcludedDisk returns the first disk of vm that snapshots exclude, so that it cannot be copied while the
// VM runs; nil if snapshots include all disks.
func ExcludedDisk(vm *inventory.VM) *inventory.Disk {
	for i, d := range vm.Disks {
		if d.Mode != "" && d.Mode != "persistent" {
			return &vm.Disks[i]
		}
	}
	return nil
}

// OldestTracked is the first hardware version with change tracking (VDDK programming guide).
const OldestTracked = 7

// Obstacles returns the reasons why vm can be copied only while it is powered off; nil if it can be copied
// while it runs.
func Obstacles(vm *inventory.VM) (why []string) {
	if d := ExcludedDisk(vm); d != nil {
		why = append(why, fmt.Sprintf("disk %d is %s: snapshots do not include it", d.Key, d.Mode))
	}
	for _, d := range vm.Disks {
		if d.Backing == inventory.RDM && migrate.WarnedOf(vm, "rdm-physical") {
			why = append(why, fmt.Sprintf("disk %d is a raw device mapping in physical mode: snapshots do not include it", d.Key))
			break
		}
	}
	if migrate.WarnedOf(vm, "passthrough") {
		why = append(why, "the VM has a passthrough device of the host: vSphere cannot create snapshots of it while it runs")
	}
	return why
}
