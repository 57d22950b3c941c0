package openstack

import (
	"cmp"
	"context"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/staged"
)

var _ staged.Examiner = (*Place)(nil)

// Examine is Check by aspects, for a VM that stands in for all.
func (p *Place) Examine(ctx context.Context, a staged.Aspect) []staged.Look {
	s, err := p.cloud.knock(ctx)
	if a == staged.Login {
		return []staged.Look{staged.See("", "Keystone answers, knows us, and names the services", err)}
	}
	if err != nil {
		return []staged.Look{{Err: err}}
	}
	vm := staged.StandIn(p.opts.Maps)
	switch a {
	case staged.Parts:
		flavor, flavorErr := p.flavor(ctx, s, vm)
		_, zoneErr := p.zones(ctx, s)
		return []staged.Look{
			staged.See("flavors", "there is "+fault.Line(flavor.Name), flavorErr),
			staged.See("availability zone", cmp.Or(fault.Line(p.opts.AvailabilityZone), "the cloud chooses it"), zoneErr),
		}
	case staged.Storage:
		return append(p.seeTypes(ctx, s, vm),
			staged.See("quota of volumes", "it leaves room for one", p.checkVolumes(ctx, s, vm)),
			p.seeServers(ctx, s, vm))
	case staged.Network:
		return p.seeNetworks(ctx, s, vm)
	case staged.Rights:
		return []staged.Look{staged.See("", "a role of the token's may do more than read", p.checkRole(s))}
	}
	return nil
}

// seeServers is no reason to refuse a VM: it is for those who have decamp start it.
func (p *Place) seeServers(ctx context.Context, s *session, vm *inventory.VM) staged.Look {
	look := staged.See("quota of servers", "it leaves room for one", p.checkServers(ctx, s, vm))
	look.Mild = fault.Is(look.Err, fault.Full)
	return look
}

// seeTypes looks at the types of volumes that are named.
func (p *Place) seeTypes(ctx context.Context, s *session, vm *inventory.VM) (looks []staged.Look) {
	seen := map[string]bool{"": true} // the project's default has no name here
	for _, d := range vm.Disks {
		name := p.opts.volumeType(d)
		if seen[name] {
			continue
		}
		seen[name] = true
		looks = append(looks, staged.See("volume type "+name, "", p.checkTypes(ctx, s, &inventory.VM{Disks: []inventory.Disk{d}})))
	}
	return looks
}

// seeNetworks looks at those that cards join. Where nothing is said of a network, each VM tells by itself
// that it has none.
func (p *Place) seeNetworks(ctx context.Context, s *session, vm *inventory.VM) (looks []staged.Look) {
	for _, card := range vm.NICs {
		if card.Network == "" && p.opts.Network == "" && p.opts.Maps.Network("").To == "" {
			continue
		}
		_, err := p.networks(ctx, s, &inventory.VM{NICs: []inventory.NIC{card}})
		looks = append(looks, staged.See(staged.Cards(card), "there is a network for cards", err))
	}
	return looks
}
