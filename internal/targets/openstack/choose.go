package openstack

import (
	"cmp"
	"context"
	"slices"
	"strings"

	volumezones "github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/availabilityzones"
	serverzones "github.com/gophercloud/gophercloud/v2/openstack/compute/v2/availabilityzones"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// chooser finds the flavor, networks and zone for VMs according to the options. It changes nothing and
// is safe for
// concurrent use.
type chooser struct {
	cloud *cloud  // the login
	opts  Options // options of the platform
}

// chooseNetworks returns the network of each card, in the order of vm.NICs.
func (c chooser) chooseNetworks(ctx context.Context, s *session, vm *inventory.VM) ([]networks.Network, error) {
	if len(vm.NICs) == 0 {
		return nil, nil
	}
	list, err := c.listNetworks(ctx, s)
	if err != nil {
		return nil, err
	}
	var joined []networks.Network
	for _, card := range vm.NICs {
		n, err := c.chooseNetwork(list, card)
		if err != nil {
			return nil, err
		}
		joined = append(joined, n)
	}
	return joined, nil
}

// listNetworks returns the networks that the project may use.
func (c chooser) listNetworks(ctx context.Context, s *session) (list []networks.Network, err error) {
	err = c.cloud.retryCall(ctx, "list networks", func(ctx context.Context) error {
		pages, err := networks.List(s.network, networks.ListOpts{}).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = networks.ExtractNetworks(pages)
		return err
	})
	return list, err
}

// chooseNetwork returns the network of a card. An entry of the map takes precedence over the default
// network.
//
// A network that does not exist is fault.NotFound. If several networks have the name, the error is
// fault.Conflict, and the user must name the ID. A VLAN or a model in the map is fault.Unsupported.
func (c chooser) chooseNetwork(list []networks.Network, card inventory.NIC) (networks.Network, error) {
	to := c.opts.Maps.Network(card.Network)
	if to.VLAN != 0 || to.Model != "" {
		return networks.Network{}, fault.New(fault.Unsupported, "cards of network %s have a vlan or model in the map: in OpenStack the network defines the VLAN, and all cards of a server have one model", fault.Line(card.Network)).
			WithHint("remove vlan and model from the map, and set the network of the VLAN")
	}
	name := cmp.Or(to.To, c.opts.Network)
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
		return networks.Network{}, fault.New(fault.Invalid, "no network at the target is set for network card %s on %s; existing networks: %s", card.MAC, fault.Line(card.Network), there).
			WithHint(`set it: network=NETWORK, or in a map: {networks: {%q: NETWORK}}`, card.Network)
	case len(found) == 0:
		return networks.Network{}, fault.New(fault.NotFound, "OpenStack has no network %s for cards of VMware's network %s; existing networks: %s", fault.Line(name), fault.Line(card.Network), there).
			WithHint("set one of them: network=NETWORK, or in a map of networks")
	case len(found) > 1:
		return networks.Network{}, fault.New(fault.Conflict, "%d networks have the name %s", len(found), fault.Line(name)).
			WithHint("set the ID of one: openstack%s network list --name %s", c.cloud.cloudOption(), fault.Quote(name))
	}
	return found[0], nil
}

// volumeZone validates the availability zone of the options, which must be one of volumes or servers.
// It returns the zone
// for volumes, or "" if Cinder does not have it.
func (c chooser) volumeZone(ctx context.Context, s *session) (ofVolumes string, err error) {
	wanted := c.opts.AvailabilityZone
	if wanted == "" {
		return "", nil
	}
	names, err := c.listVolumeZones(ctx, s)
	if err != nil {
		return "", err
	}
	if slices.Contains(names, wanted) {
		return wanted, nil
	}
	names, err = c.listServerZones(ctx, s)
	if err != nil || slices.Contains(names, wanted) {
		return "", err
	}
	return "", fault.New(fault.NotFound, "availability zone %s does not exist; existing zones: %s", fault.Line(wanted), fault.Line(strings.Join(names, ", "))).
		WithHint("set one of them: availabilityZone=ZONE, or remove the parameter")
}

// listVolumeZones returns the names of Cinder's availability zones.
func (c chooser) listVolumeZones(ctx context.Context, s *session) (names []string, err error) {
	err = c.cloud.retryCall(ctx, "list zones of volumes", func(ctx context.Context) error {
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

// listServerZones returns the names of Nova's availability zones.
func (c chooser) listServerZones(ctx context.Context, s *session) (names []string, err error) {
	err = c.cloud.retryCall(ctx, "list zones of servers", func(ctx context.Context) error {
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

// chooseFlavor returns the flavor of the options, or the smallest flavor that fits vm. The error is
// fault.NotFound if
// there is no such flavor.
func (c chooser) chooseFlavor(ctx context.Context, s *session, vm *inventory.VM) (flavors.Flavor, error) {
	var list []flavors.Flavor
	err := c.cloud.retryCall(ctx, "list flavors", func(ctx context.Context) error {
		pages, err := flavors.ListDetail(s.compute, nil).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = flavors.ExtractFlavors(pages)
		return err
	})
	if err != nil {
		return flavors.Flavor{}, err
	}
	need := needOf(vm, c.opts)
	if c.opts.Flavor != "" {
		return namedFlavor(list, c.opts.Flavor, need)
	}
	return smallestFlavor(list, need)
}
