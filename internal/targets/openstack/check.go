package openstack

import (
	"context"
	"slices"
	"strings"

	volumelimits "github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/limits"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumetypes"
	serverlimits "github.com/gophercloud/gophercloud/v2/openstack/compute/v2/limits"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// checker determines whether VMs can be delivered. It changes nothing and is safe for concurrent use.
type checker struct {
	chooser
	finder finder // finds parts of earlier deliveries
}

// checkVM returns the reason why vm cannot be delivered, or nil. It stops at the first problem, in this
// order: login,
// role, flavor, networks, MACs, names, volume types, quota of volumes, availability zone.
func (c checker) checkVM(ctx context.Context, vm *inventory.VM) error {
	m, err := machineOf(targets.Definition{VM: vm}, c.opts)
	if err != nil {
		return err
	}
	s, err := c.cloud.sessionNow(ctx) // one attempt, because the name may be wrong
	if err != nil {
		return err
	}
	if err := c.checkRole(s); err != nil {
		return err
	}
	if _, err := c.chooseFlavor(ctx, s, vm); err != nil {
		return err
	}
	nets, err := c.chooseNetworks(ctx, s, vm)
	if err != nil {
		return err
	}
	for _, check := range []func() error{
		func() error { return c.checkMACs(ctx, s, vm, nets) },
		func() error { return c.finder.checkNames(ctx, s, vm, m.name) },
		func() error { return c.checkTypes(ctx, s, vm) },
		func() error { return c.checkVolumes(ctx, s, vm) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	_, err = c.volumeZone(ctx, s)
	return err
}

// checkRole returns fault.Denied if the token's only role is reader. The permissions of other roles
// depend on each
// service's policy, which cannot be queried.
func (c checker) checkRole(s *session) error {
	if !s.readsOnly() {
		return nil
	}
	return fault.New(fault.Denied, "the token has only the role reader on %s, which does not permit changes", c.cloud.name).
		WithHint("add the role member: openstack%s role add --project %s --user USER member", c.cloud.cloudOption(), fault.Quote(s.project))
}

// checkTypes returns fault.NotFound for a volume type that does not exist.
func (c checker) checkTypes(ctx context.Context, s *session, vm *inventory.VM) error {
	var wanted []string
	for _, d := range vm.Disks {
		if name := c.opts.volumeType(d); name != "" && !slices.Contains(wanted, name) {
			wanted = append(wanted, name)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	list, err := c.listTypes(ctx, s)
	if err != nil {
		return err
	}
	for _, name := range wanted {
		if err := hasType(list, name); err != nil {
			return err
		}
	}
	return nil
}

// listTypes returns the types of volumes.
func (c checker) listTypes(ctx context.Context, s *session) (list []volumetypes.VolumeType, err error) {
	err = c.cloud.retryCall(ctx, "list types of volumes", func(ctx context.Context) error {
		pages, err := volumetypes.List(s.volume, volumetypes.ListOpts{}).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = volumetypes.ExtractVolumeTypes(pages)
		return err
	})
	return list, err
}

// hasType returns nil if the list contains a type with the name or ID, else fault.NotFound with the
// existing names.
func hasType(list []volumetypes.VolumeType, name string) error {
	var names []string
	for _, t := range list {
		if t.Name == name || t.ID == name {
			return nil
		}
		names = append(names, fault.Line(t.Name))
	}
	return fault.New(fault.NotFound, "volume type %s does not exist; existing types: %s", fault.Line(name), strings.Join(names[:min(len(names), 30)], ", ")).
		WithHint("set one of them with volumeType=TYPE or in a map of storages, or omit it")
}

// checkVolumes returns fault.Full if the project's quota of volumes is too small for vm. Volumes of an
// earlier delivery
// count as existing.
func (c checker) checkVolumes(ctx context.Context, s *session, vm *inventory.VM) error {
	if c.opts.Boot == fromImage {
		return nil
	}
	var l *volumelimits.Limits
	err := c.cloud.retryCall(ctx, "read the limits of volumes", func(ctx context.Context) (err error) {
		l, err = volumelimits.Get(ctx, s.volume).Extract()
		return err
	})
	if err != nil {
		return err
	}
	there, err := c.finder.volumesOf(ctx, s, vm) // an earlier delivery created them, and this one reuses them
	if err != nil {
		return err
	}
	gigabytes, number := 0, max(len(vm.Disks), 1)-len(there)
	for _, d := range vm.Disks {
		gigabytes += gibibytes(d.Capacity)
	}
	for _, v := range there {
		gigabytes -= v.Size
	}
	a := l.Absolute
	return firstError(
		c.quotaError("GiB of volumes", max(gigabytes, 0), a.MaxTotalVolumeGigabytes, a.TotalGigabytesUsed),
		c.quotaError("volumes", max(number, 0), a.MaxTotalVolumes, a.TotalVolumesUsed),
	)
}

// checkServers returns fault.Full if the project's quota of servers is too small for vm. Check does not
// call it, because
// not all VMs are started, and other servers may be stopped before.
func (c checker) checkServers(ctx context.Context, s *session, vm *inventory.VM) error {
	var l *serverlimits.Limits
	err := c.cloud.retryCall(ctx, "read the limits of servers", func(ctx context.Context) (err error) {
		l, err = serverlimits.Get(ctx, s.compute, nil).Extract()
		return err
	})
	if err != nil {
		return err
	}
	a := l.Absolute
	return firstError(
		c.quotaError("servers", 1, a.MaxTotalInstances, a.TotalInstancesUsed),
		c.quotaError("vCPUs", vm.CPUs, a.MaxTotalCores, a.TotalCoresUsed),
		c.quotaError("MiB of memory", int(vm.MemoryMiB), a.MaxTotalRAMSize, a.TotalRAMUsed),
	)
}

// quotaError returns fault.Full if need exceeds the rest of the quota. A negative quota is unlimited.
func (c checker) quotaError(what string, need, quota, used int) error {
	if quota < 0 || need <= quota-used {
		return nil
	}
	return fault.New(fault.Full, "%d %s are required, and the project has %d of %d left", need, what, max(quota-used, 0), quota).
		WithHint("remove unused resources, or raise the quota: openstack%s quota show --usage", c.cloud.cloudOption())
}

// firstError returns the first error that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkMACs returns fault.Conflict if a foreign port has the MAC of one of vm's cards. on contains the
// network of each card.
func (c checker) checkMACs(ctx context.Context, s *session, vm *inventory.VM, on []networks.Network) error {
	if c.opts.MACs == newMACs {
		return nil
	}
	for i, card := range vm.NICs {
		list, err := c.finder.listPorts(ctx, s, ports.ListOpts{NetworkID: on[i].ID, MACAddress: card.MAC})
		if err != nil {
			return err
		}
		for _, port := range list {
			if port.Description != portMark(vm) && port.NetworkID == on[i].ID && strings.EqualFold(port.MACAddress, card.MAC) {
				return fault.New(fault.Conflict, "port %s on network %s already has the address %s", port.ID, fault.Line(on[i].Name), card.MAC).
					WithHint("find its owner: openstack%s port show %s; or use a new address with mac=new", c.cloud.cloudOption(), port.ID)
			}
		}
	}
	return nil
}
