package openstack

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// networks finds the network of each card, in their order.
func (p *Place) networks(ctx context.Context, s *session, vm *inventory.VM) ([]networks.Network, error) {
	if len(vm.NICs) == 0 {
		return nil, nil
	}
	var list []networks.Network
	err := p.cloud.ask(ctx, "list networks", func(ctx context.Context) error {
		pages, err := networks.List(s.network, networks.ListOpts{}).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = networks.ExtractNetworks(pages)
		return err
	})
	if err != nil {
		return nil, err
	}
	var joined []networks.Network
	for _, card := range vm.NICs {
		n, err := p.network(list, card)
		if err != nil {
			return nil, err
		}
		joined = append(joined, n)
	}
	return joined, nil
}

// network is the one that a card joins. Two of a name are told apart by ID.
func (p *Place) network(list []networks.Network, card inventory.NIC) (networks.Network, error) {
	to := p.opts.Maps.Network(card.Network)
	if to.VLAN != 0 || to.Model != "" {
		return networks.Network{}, fault.New(fault.Unsupported, "cards of network %s have a vlan or model in the map: a VLAN is the network's there, and a server has one model for all cards", fault.Line(card.Network)).
			WithHint("take vlan and model out of the map, and name the network that is in the VLAN")
	}
	name := cmp.Or(to.To, p.opts.Network)
	var found []networks.Network
	var names []string
	for _, n := range list {
		names = append(names, fault.Line(n.Name))
		if name == n.ID || name == n.Name && name != "" {
			found = append(found, n)
		}
	}
	slices.Sort(names)
	there := strings.Join(names[:min(len(names), 30)], ", ")
	switch {
	case name == "":
		return networks.Network{}, fault.New(fault.Invalid, "it is not said where network card %s leads, which was on %s; there are: %s", card.MAC, fault.Line(card.Network), there).
			WithHint(`name it: network=NETWORK, or in a map: {networks: {%q: NETWORK}}`, card.Network)
	case len(found) == 0:
		return networks.Network{}, fault.New(fault.NotFound, "there is no network %s for cards of VMware's network %s; there are: %s", fault.Line(name), fault.Line(card.Network), there).
			WithHint("name one of them: network=NETWORK, or a map of networks")
	case len(found) > 1:
		return networks.Network{}, fault.New(fault.Conflict, "%d networks are called %s", len(found), fault.Line(name)).
			WithHint("name its ID: openstack%s network list --name %s", p.cloud.option(), fault.Quote(name))
	}
	return found[0], nil
}
