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

// A checker reports whether VMs could be delivered. It changes nothing and is safe for concurrent use.
type checker struct {
	chooser
	finder finder
}

// check reports why vm cannot be delivered.
func (c checker) check(ctx context.Context, vm *inventory.VM) error {
	m, err := machineOf(targets.Definition{VM: vm}, c.opts)
	if err != nil {
		return err
	}
	s, err := c.cloud.knock(ctx) // the first question: who mistyped a name is not to wait
	if err != nil {
		return err
	}
	if err := c.checkRole(s); err != nil {
		return err
	}
	if _, err := c.flavor(ctx, s, vm); err != nil {
		return err
	}
	nets, err := c.networks(ctx, s, vm)
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
	_, err = c.zones(ctx, s)
	return err
}

// checkRole refuses a token that changes nothing. What others may do is known only to each service's policy.
func (c checker) checkRole(s *session) error {
	if !s.readsOnly() {
		return nil
	}
	return fault.New(fault.Denied, "all that the token may do on %s is read: its only role is reader", c.cloud.name).
		WithHint("openstack%s role add --project %s --user USER member", c.cloud.option(), fault.Quote(s.project))
}

// checkTypes refuses types of volumes that there are not.
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
	var list []volumetypes.VolumeType
	err := c.cloud.ask(ctx, "list types of volumes", func(ctx context.Context) error {
		pages, err := volumetypes.List(s.volume, volumetypes.ListOpts{}).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = volumetypes.ExtractVolumeTypes(pages)
		return err
	})
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

func hasType(list []volumetypes.VolumeType, name string) error {
	var names []string
	for _, t := range list {
		if t.Name == name || t.ID == name {
			return nil
		}
		names = append(names, fault.Line(t.Name))
	}
	return fault.New(fault.NotFound, "there is no type of volumes %s; there are: %s", fault.Line(name), strings.Join(names[:min(len(names), 30)], ", ")).
		WithHint("name one of them: volumeType=TYPE or a map of storages, or leave it out")
}

// checkVolumes compares what the project may have of volumes with what it has and is to get.
func (c checker) checkVolumes(ctx context.Context, s *session, vm *inventory.VM) error {
	if c.opts.Boot == fromImage {
		return nil
	}
	var l *volumelimits.Limits
	err := c.cloud.ask(ctx, "look at the limits of volumes", func(ctx context.Context) (err error) {
		l, err = volumelimits.Get(ctx, s.volume).Extract()
		return err
	})
	if err != nil {
		return err
	}
	there, err := c.finder.volumesOf(ctx, s, vm) // of an earlier delivery, which this one goes on with
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
	return errorsFirst(
		c.room("GiB of volumes", max(gigabytes, 0), a.MaxTotalVolumeGigabytes, a.TotalGigabytesUsed),
		c.room("volumes", max(number, 0), a.MaxTotalVolumes, a.TotalVolumesUsed),
	)
}

// checkServers does the same for servers. It is not for Check: not all VMs are started, and others may have
// been stopped for it by then.
func (c checker) checkServers(ctx context.Context, s *session, vm *inventory.VM) error {
	var l *serverlimits.Limits
	err := c.cloud.ask(ctx, "look at the limits of servers", func(ctx context.Context) (err error) {
		l, err = serverlimits.Get(ctx, s.compute, nil).Extract()
		return err
	})
	if err != nil {
		return err
	}
	a := l.Absolute
	return errorsFirst(
		c.room("servers", 1, a.MaxTotalInstances, a.TotalInstancesUsed),
		c.room("vCPUs", vm.CPUs, a.MaxTotalCores, a.TotalCoresUsed),
		c.room("MiB of memory", int(vm.MemoryMiB), a.MaxTotalRAMSize, a.TotalRAMUsed),
	)
}

// room refuses what is more than a quota leaves. A quota below zero is none.
func (c checker) room(what string, need, quota, used int) error {
	if quota < 0 || need <= quota-used {
		return nil
	}
	return fault.New(fault.Full, "%d %s are needed, and the project has %d of %d left", need, what, max(quota-used, 0), quota).
		WithHint("remove what is not needed, or have the quota raised: openstack%s quota show --usage", c.cloud.option())
}

// errorsFirst is the first that is one.
func errorsFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkMACs refuses addresses that somebody else's ports have.
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
				return fault.New(fault.Conflict, "port %s on network %s has the address %s already", port.ID, fault.Line(on[i].Name), card.MAC).
					WithHint("see whose it is: openstack%s port show %s; or leave the address with mac=new", c.cloud.option(), port.ID)
			}
		}
	}
	return nil
}
