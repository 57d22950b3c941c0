package vm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// Defaults of a KVM guest's domain.
const (
	mostCPUs   = 255     // number of processors that interrupts reach without an IOMMU (x2APIC)
	mostMemory = 1 << 20 // MiB; 40 address bits, QEMU's default for an unknown CPU
)

// checkSize reports VMs that need more processors or memory than a default domain of
// libvirt supports.
func (g *group) checkSize(context.Context) []doctor.Finding {
	return g.forEachVM(func(vm *inventory.VM) doctor.Finding {
		switch {
		case vm.CPUs > mostCPUs:
			return doctor.Finding{
				Status: doctor.Warning, Found: fmt.Sprintf("%d processors", vm.CPUs), Want: fmt.Sprintf("at most %d processors without a virtual IOMMU", mostCPUs),
				Remedy: "# after the migration, add to the devices with virsh edit:\n<iommu model='intel'><driver intremap='on' eim='on'/></iommu>",
			}
		case vm.MemoryMiB >= mostMemory:
			return doctor.Finding{
				Status: doctor.Warning, Found: fmt.Sprintf("%d GiB of memory", vm.MemoryMiB>>10), Want: "less than 1 TiB of memory, or a virtual processor with more address bits",
				Remedy: "# after the migration, add to the element cpu with virsh edit:\n<maxphysaddr mode='passthrough'/>",
			}
		}
		return doctor.Finding{Found: fmt.Sprintf("processors: %d, memory: %d MiB", vm.CPUs, vm.MemoryMiB)}
	})
}

// checkMACs reports MAC addresses that several VMs have. It considers the VMs to
// migrate, the other VMs of the source, and the VMs that were migrated earlier.
func (g *group) checkMACs(context.Context) []doctor.Finding {
	holders := map[string][]*inventory.VM{}
	for _, list := range [][]inventory.VM{g.VMs, g.All, g.AtTarget} {
		for i := range list {
			addHolder(holders, &list[i])
		}
	}
	return g.forEachVM(func(vm *inventory.VM) doctor.Finding {
		var twice []string
		for _, n := range vm.NICs {
			for _, other := range holders[n.MAC] {
				if !isSameVM(vm, other) {
					twice = append(twice, fmt.Sprintf("%s also has the MAC address %s", onVM(other), n.MAC))
				}
			}
		}
		switch {
		case len(vm.NICs) == 0:
			return doctor.Finding{}
		case len(twice) == 0:
			return doctor.Finding{Found: "no other known VM has its MAC addresses"}
		}
		return doctor.Finding{
			Status: doctor.Warning, Found: strings.Join(twice, "; "), Want: "unique MAC addresses in each network",
			Remedy: "# connect the VMs to separate networks, or change one address:\nvirsh edit " + fault.Quote(vm.Name),
		}
	})
}

// addHolder adds a VM to the holders of its MAC addresses, unless the same VM is there
// already.
func addHolder(holders map[string][]*inventory.VM, vm *inventory.VM) {
	for _, n := range vm.NICs {
		known := slices.ContainsFunc(holders[n.MAC], func(other *inventory.VM) bool { return isSameVM(vm, other) })
		if n.MAC != "" && !known {
			holders[n.MAC] = append(holders[n.MAC], vm)
		}
	}
}

// isSameVM reports whether two descriptions are of one VM. A migrated VM may have
// another reference at the source, if it was registered again.
func isSameVM(a, b *inventory.VM) bool {
	return a.InstanceUUID == b.InstanceUUID && a.UUID == b.UUID && (a.UUID != "" || a.Ref == b.Ref)
}

// checkTargets reports names that are used already at the target. Missing space is
// reported by other checks.
func (g *group) checkTargets(ctx context.Context) (found []doctor.Finding) {
	if g.Refused {
		return nil
	}
	taken := map[string]*inventory.VM{}
	for _, p := range g.Targets {
		found = append(found, g.forEachVM(func(vm *inventory.VM) doctor.Finding { return g.checkTarget(ctx, p, vm, taken) })...)
	}
	return found
}

// checkTarget returns the finding for one VM at one target. taken contains the VMs by
// their folders, and is updated.
func (g *group) checkTarget(ctx context.Context, p Target, vm *inventory.VM, taken map[string]*inventory.VM) doctor.Finding {
	folder := p.Folder(vm)
	// Two VMs of one plan may have names that give the same folder.
	if first := taken[folder]; first != nil {
		return doctor.Finding{
			Status: doctor.Failure, Found: fmt.Sprintf("%s (%s) is also migrated to %s", onVM(first), first.Ref, folder), Want: "a separate folder for each VM",
			Remedy: fmt.Sprintf("# migrate one of them to another folder, or rename it:\ngovc vm.change -vm.uuid %s -name NAME", vm.UUID),
		}
	}
	taken[folder] = vm
	if p.Holds(vm) {
		return doctor.Finding{
			Status: doctor.Warning, Found: "already migrated to " + folder, Want: "a folder without an earlier copy",
			Remedy: "# verify the earlier copy:\ndecamp verify " + fault.Quote(folder) + "\n# to migrate it again:\nmv " + fault.Quote(folder) + " " + fault.Quote(folder+".old"),
		}
	}
	_, err := p.Plan(ctx, vm)
	if err == nil || fault.Is(err, fault.Full) {
		return doctor.Finding{Found: folder + " is free"}
	}
	f := unknownFinding(err)[0]
	f.Status, f.Want = doctor.Failure, "a target that accepts the VM"
	return f
}
