package openstack

import (
	"cmp"
	"context"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/platform"
)

// examineAspect performs the checks of checkVM by aspect, for a VM with all datastores and networks of
// the map.
func (c checker) examineAspect(ctx context.Context, a platform.Aspect) []platform.AspectResult {
	s, err := c.cloud.sessionNow(ctx)
	if a == platform.Login {
		return []platform.AspectResult{platform.NewResult("", "Keystone accepts the credentials and lists the services", err)}
	}
	if err != nil {
		return []platform.AspectResult{{Err: err}}
	}
	vm := platform.PlaceholderVM(c.opts.Maps)
	switch a {
	case platform.Parts:
		flavor, flavorErr := c.chooseFlavor(ctx, s, vm)
		_, zoneErr := c.volumeZone(ctx, s)
		return []platform.AspectResult{
			platform.NewResult("flavors", "flavor "+fault.Line(flavor.Name)+" exists", flavorErr),
			platform.NewResult("availability zone", cmp.Or(fault.Line(c.opts.AvailabilityZone), "selected by OpenStack"), zoneErr),
		}
	case platform.Storage:
		return append(c.seeTypes(ctx, s, vm),
			platform.NewResult("quota of volumes", "sufficient for one more", c.checkVolumes(ctx, s, vm)),
			c.seeServers(ctx, s, vm))
	case platform.Network:
		return c.seeNetworks(ctx, s, vm)
	case platform.Rights:
		return []platform.AspectResult{platform.NewResult("", "the token has a role with more than read access", c.checkRole(s))}
	}
	return nil
}

// seeServers checks the quota of servers. It does not prevent a delivery, because not all VMs are
// started.
func (c checker) seeServers(ctx context.Context, s *session, vm *inventory.VM) platform.AspectResult {
	look := platform.NewResult("quota of servers", "sufficient for one more", c.checkServers(ctx, s, vm))
	look.WarningOnly = fault.Is(look.Err, fault.Full)
	return look
}

// seeTypes checks the volume types that the options and the map name.
func (c checker) seeTypes(ctx context.Context, s *session, vm *inventory.VM) (looks []platform.AspectResult) {
	seen := map[string]bool{"": true} // the project's default has no name in the options
	for _, d := range vm.Disks {
		name := c.opts.volumeType(d)
		if seen[name] {
			continue
		}
		seen[name] = true
		looks = append(looks, platform.NewResult("volume type "+name, "", c.checkTypes(ctx, s, &inventory.VM{Disks: []inventory.Disk{d}})))
	}
	return looks
}

// seeNetworks checks the networks that the options and the map name. If there is no default network,
// unmapped networks
// are not checked.
func (c checker) seeNetworks(ctx context.Context, s *session, vm *inventory.VM) (looks []platform.AspectResult) {
	for _, card := range vm.NICs {
		if card.Network == "" && c.opts.Network == "" && c.opts.Maps.Network("").To == "" {
			continue
		}
		_, err := c.chooseNetworks(ctx, s, &inventory.VM{NICs: []inventory.NIC{card}})
		looks = append(looks, platform.NewResult(platform.Cards(card), "the network exists", err))
	}
	return looks
}
