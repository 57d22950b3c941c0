package openstack

import (
	"cmp"
	"context"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/platform"
)

// examine is check by aspects, for a VM that stands in for all.
func (c checker) examine(ctx context.Context, a platform.Aspect) []platform.Look {
	s, err := c.cloud.knock(ctx)
	if a == platform.Login {
		return []platform.Look{platform.See("", "Keystone answers, knows us, and names the services", err)}
	}
	if err != nil {
		return []platform.Look{{Err: err}}
	}
	vm := platform.StandIn(c.opts.Maps)
	switch a {
	case platform.Parts:
		flavor, flavorErr := c.flavor(ctx, s, vm)
		_, zoneErr := c.zones(ctx, s)
		return []platform.Look{
			platform.See("flavors", "there is "+fault.Line(flavor.Name), flavorErr),
			platform.See("availability zone", cmp.Or(fault.Line(c.opts.AvailabilityZone), "the cloud chooses it"), zoneErr),
		}
	case platform.Storage:
		return append(c.seeTypes(ctx, s, vm),
			platform.See("quota of volumes", "it leaves room for one", c.checkVolumes(ctx, s, vm)),
			c.seeServers(ctx, s, vm))
	case platform.Network:
		return c.seeNetworks(ctx, s, vm)
	case platform.Rights:
		return []platform.Look{platform.See("", "a role of the token's may do more than read", c.checkRole(s))}
	}
	return nil
}

// seeServers is no reason to refuse a VM: it is for those who have decamp start it.
func (c checker) seeServers(ctx context.Context, s *session, vm *inventory.VM) platform.Look {
	look := platform.See("quota of servers", "it leaves room for one", c.checkServers(ctx, s, vm))
	look.Mild = fault.Is(look.Err, fault.Full)
	return look
}

// seeTypes looks at the types of volumes that are named.
func (c checker) seeTypes(ctx context.Context, s *session, vm *inventory.VM) (looks []platform.Look) {
	seen := map[string]bool{"": true} // the project's default has no name here
	for _, d := range vm.Disks {
		name := c.opts.volumeType(d)
		if seen[name] {
			continue
		}
		seen[name] = true
		looks = append(looks, platform.See("volume type "+name, "", c.checkTypes(ctx, s, &inventory.VM{Disks: []inventory.Disk{d}})))
	}
	return looks
}

// seeNetworks looks at those that cards join. Where nothing is said of a network, each VM tells by itself
// that it has none.
func (c checker) seeNetworks(ctx context.Context, s *session, vm *inventory.VM) (looks []platform.Look) {
	for _, card := range vm.NICs {
		if card.Network == "" && c.opts.Network == "" && c.opts.Maps.Network("").To == "" {
			continue
		}
		_, err := c.networks(ctx, s, &inventory.VM{NICs: []inventory.NIC{card}})
		looks = append(looks, platform.See(platform.Cards(card), "there is a network for cards", err))
	}
	return looks
}
