package openstack

import (
	"context"
	"slices"
	"strings"

	volumezones "github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/availabilityzones"
	volumelimits "github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/limits"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumetypes"
	serverzones "github.com/gophercloud/gophercloud/v2/openstack/compute/v2/availabilityzones"
	serverlimits "github.com/gophercloud/gophercloud/v2/openstack/compute/v2/limits"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// Check says whether vm could be delivered. It asks only, and changes nothing.
func (p *Place) Check(ctx context.Context, vm *inventory.VM) error {
	m, err := machineOf(targets.Definition{VM: vm}, p.opts)
	if err != nil {
		return err
	}
	s, err := p.cloud.knock(ctx) // the first question: who mistyped a name is not to wait
	if err != nil {
		return err
	}
	if err := p.checkRole(s); err != nil {
		return err
	}
	if _, err := p.flavor(ctx, s, vm); err != nil {
		return err
	}
	nets, err := p.networks(ctx, s, vm)
	if err != nil {
		return err
	}
	for _, check := range []func() error{
		func() error { return p.checkMACs(ctx, s, vm, nets) },
		func() error { return p.checkNames(ctx, s, vm, m.name) },
		func() error { return p.checkTypes(ctx, s, vm) },
		func() error { return p.checkVolumes(ctx, s, vm) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	_, err = p.zones(ctx, s)
	return err
}

// checkRole refuses a token that changes nothing. What others may do is known only to each service's policy.
func (p *Place) checkRole(s *session) error {
	if !s.readsOnly() {
		return nil
	}
	return fault.New(fault.Denied, "all that the token may do on %s is read: its only role is reader", p.cloud.name).
		WithHint("openstack%s role add --project %s --user USER member", p.cloud.option(), fault.Quote(s.project))
}

// checkTypes refuses types of volumes that there are not.
func (p *Place) checkTypes(ctx context.Context, s *session, vm *inventory.VM) error {
	var wanted []string
	for _, d := range vm.Disks {
		if name := p.opts.volumeType(d); name != "" && !slices.Contains(wanted, name) {
			wanted = append(wanted, name)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	var list []volumetypes.VolumeType
	err := p.cloud.ask(ctx, "list types of volumes", func(ctx context.Context) error {
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
func (p *Place) checkVolumes(ctx context.Context, s *session, vm *inventory.VM) error {
	if p.opts.Boot == fromImage {
		return nil
	}
	var l *volumelimits.Limits
	err := p.cloud.ask(ctx, "look at the limits of volumes", func(ctx context.Context) (err error) {
		l, err = volumelimits.Get(ctx, s.volume).Extract()
		return err
	})
	if err != nil {
		return err
	}
	there, err := p.volumesOf(ctx, s, vm) // of an earlier delivery, which this one goes on with
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
		p.room("GiB of volumes", max(gigabytes, 0), a.MaxTotalVolumeGigabytes, a.TotalGigabytesUsed),
		p.room("volumes", max(number, 0), a.MaxTotalVolumes, a.TotalVolumesUsed),
	)
}

// checkServers does the same for servers. It is not for Check: not all VMs are started, and others may have
// been stopped for it by then.
func (p *Place) checkServers(ctx context.Context, s *session, vm *inventory.VM) error {
	var l *serverlimits.Limits
	err := p.cloud.ask(ctx, "look at the limits of servers", func(ctx context.Context) (err error) {
		l, err = serverlimits.Get(ctx, s.compute, nil).Extract()
		return err
	})
	if err != nil {
		return err
	}
	a := l.Absolute
	return errorsFirst(
		p.room("servers", 1, a.MaxTotalInstances, a.TotalInstancesUsed),
		p.room("vCPUs", vm.CPUs, a.MaxTotalCores, a.TotalCoresUsed),
		p.room("MiB of memory", int(vm.MemoryMiB), a.MaxTotalRAMSize, a.TotalRAMUsed),
	)
}

// room refuses what is more than a quota leaves. A quota below zero is none.
func (p *Place) room(what string, need, quota, used int) error {
	if quota < 0 || need <= quota-used {
		return nil
	}
	return fault.New(fault.Full, "%d %s are needed, and the project has %d of %d left", need, what, max(quota-used, 0), quota).
		WithHint("remove what is not needed, or have the quota raised: openstack%s quota show --usage", p.cloud.option())
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

// zones finds out where the availability zone is one: of volumes, of servers, or of both. It is "" for
// volumes where Cinder does not know it.
func (p *Place) zones(ctx context.Context, s *session) (ofVolumes string, err error) {
	wanted := p.opts.AvailabilityZone
	if wanted == "" {
		return "", nil
	}
	names, err := p.volumeZones(ctx, s)
	if err != nil {
		return "", err
	}
	if slices.Contains(names, wanted) {
		return wanted, nil
	}
	names, err = p.serverZones(ctx, s)
	if err != nil || slices.Contains(names, wanted) {
		return "", err
	}
	return "", fault.New(fault.NotFound, "there is no availability zone %s; there are: %s", fault.Line(wanted), fault.Line(strings.Join(names, ", "))).
		WithHint("name one of them: availabilityZone=ZONE, or leave it out")
}

func (p *Place) volumeZones(ctx context.Context, s *session) (names []string, err error) {
	err = p.cloud.ask(ctx, "list zones of volumes", func(ctx context.Context) error {
		pages, err := volumezones.List(s.volume).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err := volumezones.ExtractAvailabilityZones(pages)
		names = nil
		for _, z := range list {
			names = append(names, z.ZoneName)
		}
		return err
	})
	return names, err
}

func (p *Place) serverZones(ctx context.Context, s *session) (names []string, err error) {
	err = p.cloud.ask(ctx, "list zones of servers", func(ctx context.Context) error {
		pages, err := serverzones.List(s.compute).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err := serverzones.ExtractAvailabilityZones(pages)
		names = nil
		for _, z := range list {
			names = append(names, z.ZoneName)
		}
		return err
	})
	return names, err
}
