package openstack

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// need is the minimum of a flavor.
type need struct {
	cpus, ramMiB, diskGiB int // diskGiB is zero if the disks are volumes
}

// needOf returns the minimum for vm.
func needOf(vm *inventory.VM, o Options) need {
	n := need{cpus: vm.CPUs, ramMiB: int(vm.MemoryMiB)}
	if o.Boot == fromImage && len(vm.Disks) == 1 {
		n.diskGiB = gibibytes(vm.Disks[0].Capacity)
	}
	return n
}

// String returns the minimum for messages.
func (n need) String() string {
	if n.diskGiB == 0 {
		return fmt.Sprintf("%d vCPUs and %d MiB", n.cpus, n.ramMiB)
	}
	return fmt.Sprintf("%d vCPUs, %d MiB and a disk of %d GiB", n.cpus, n.ramMiB, n.diskGiB)
}

// fitsIn reports whether the flavor is large enough.
func (n need) fitsIn(f flavors.Flavor) bool {
	return f.VCPUs >= n.cpus && f.RAM >= n.ramMiB && f.Disk >= n.diskGiB
}

// namedFlavor returns the flavor with a name or ID. It may have fewer CPUs and less memory than the VM,
// but not a
// smaller disk.
func namedFlavor(list []flavors.Flavor, name string, n need) (flavors.Flavor, error) {
	for _, f := range list {
		if f.ID != name && f.Name != name {
			continue
		}
		if f.Disk < n.diskGiB {
			return f, fault.New(fault.Invalid, "flavor %s has a disk of %d GiB, boot=image requires %d", fault.Line(f.Name), f.Disk, n.diskGiB).
				WithHint("set a larger flavor with flavor=NAME, or remove boot=image")
		}
		return f, nil
	}
	return flavors.Flavor{}, fault.New(fault.NotFound, "flavor %s does not exist; existing flavors: %s", fault.Line(name), describeFlavors(list)).
		WithHint("set one of them: flavor=NAME, or omit it")
}

// smallestFlavor returns the flavor with the least memory, then CPUs, then disk, that is large enough.
func smallestFlavor(list []flavors.Flavor, n need) (flavors.Flavor, error) {
	fitting := slices.DeleteFunc(slices.Clone(list), func(f flavors.Flavor) bool { return !n.fitsIn(f) })
	if len(fitting) == 0 {
		return flavors.Flavor{}, fault.New(fault.NotFound, "no flavor has %v; existing flavors: %s", n, describeFlavors(list)).
			WithHint("create one: openstack flavor create --vcpus %d --ram %d --disk %d NAME; or set a smaller one: flavor=NAME", n.cpus, n.ramMiB, n.diskGiB)
	}
	return slices.MinFunc(fitting, func(a, b flavors.Flavor) int {
		return cmp.Or(cmp.Compare(a.RAM, b.RAM), cmp.Compare(a.VCPUs, b.VCPUs), cmp.Compare(a.Disk, b.Disk), cmp.Compare(a.Name, b.Name))
	}), nil
}

// describeFlavors lists at most 30 flavors for messages.
func describeFlavors(list []flavors.Flavor) string {
	var all []string
	for _, f := range list[:min(len(list), 30)] {
		all = append(all, fmt.Sprintf("%s (%d vCPUs, %d MiB, disk %d GiB)", fault.Line(f.Name), f.VCPUs, f.RAM, f.Disk))
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}
