package openstack

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// portName returns the name of the i-th card's port.
func (w *delivery) portName(i int) string { return fmt.Sprintf("%s-net%d", w.machine.name, i) }

// portMaker creates the ports of a VM's cards.
type portMaker struct{ *delivery }

// makePorts creates a port for each card, or reuses it, and sets w.ports. It removes other ports of
// earlier deliveries.
func (w portMaker) makePorts(ctx context.Context) error {
	there, err := w.finder.portsOf(ctx, w.session, w.VM)
	if err != nil {
		return err
	}
	for i, card := range w.VM.NICs {
		at := slices.IndexFunc(there, func(p ports.Port) bool { return w.matchesCard(p, i) })
		if at >= 0 {
			w.ports = append(w.ports, there[at])
			there = slices.Delete(there, at, at+1)
			continue
		}
		port, err := w.makePort(ctx, i, w.nets[i])
		if err != nil {
			return fmt.Errorf("network card %s: %w", card.MAC, err)
		}
		w.ports = append(w.ports, port)
	}
	for _, port := range there {
		if err := w.remover.removePort(ctx, w.session, port); err != nil {
			return err
		}
	}
	return nil
}

// matchesCard reports whether p, which has the VM's mark, is a suitable port for the i-th card.
func (w portMaker) matchesCard(p ports.Port, i int) bool {
	card := w.VM.NICs[i]
	return p.Name == w.portName(i) && p.NetworkID == w.nets[i].ID && p.AdminStateUp != card.LinkDown() &&
		(w.opts.MACs == newMACs || strings.EqualFold(p.MACAddress, card.MAC))
}

// makePort creates the port of the i-th card. After a lost answer it looks for the port before it tries
// again. If a fixed
// address is taken, it creates the port without that address and adds a warning.
func (w portMaker) makePort(ctx context.Context, i int, on networks.Network) (ports.Port, error) {
	card := w.VM.NICs[i]
	fixed, err := w.fixedAddresses(ctx, card, on)
	if err != nil {
		return ports.Port{}, err
	}
	for try := 1; ; try++ {
		port, err := w.createPort(ctx, i, on, fixed)
		switch {
		case err == nil:
			return port, nil
		case fault.Is(err, fault.Conflict) && len(fixed) > 0 && strings.Contains(err.Error(), "IpAddress"):
			w.warn("address", "find its owner: openstack port list --fixed-ip ip-address="+fixed[0].IPAddress,
				"an address of card %s is already in use on network %s: %s", card.MAC, fault.Line(on.Name), err.Error())
			fixed = nil
			continue
		case fault.Is(err, fault.Denied):
			return port, fault.New(fault.Denied, "%w", err).WithHint("only the owner of network %s is permitted to choose addresses on it: "+
				"use a network of the project with network=, use the role admin, or use a new MAC with mac=new", fault.Line(on.Name))
		case !fault.Is(err, fault.Conflict) && (!isTemporary(err) || try == createTries):
			return port, err
		}
		there, look := w.lookForPort(ctx, i)
		if look != nil || there != nil {
			return portValue(there), look
		}
		if fault.Is(err, fault.Conflict) {
			return port, fault.New(fault.Conflict, "the address is already in use on network %s: %w", fault.Line(on.Name), err).
				WithHint("find its owner: openstack%s port list --mac-address %s; or use a new one with mac=new", w.cloud.cloudOption(), card.MAC)
		}
		if err := w.cloud.wait(ctx, pause); err != nil {
			return port, err
		}
	}
}

// portValue returns *p, or the zero Port if p is nil.
func portValue(p *ports.Port) ports.Port {
	if p == nil {
		return ports.Port{}
	}
	return *p
}

// createTries is the maximum number of attempts to create an object whose answers are lost.
const createTries = 10

// createPort sends one request for the i-th card's port.
func (w portMaker) createPort(ctx context.Context, i int, on networks.Network, fixed []ports.IP) (ports.Port, error) {
	card := w.VM.NICs[i]
	o := ports.CreateOpts{
		NetworkID: on.ID, Name: w.portName(i), Description: portMark(w.VM), AdminStateUp: new(!card.LinkDown()),
	}
	if w.opts.MACs != newMACs {
		o.MACAddress = card.MAC
	}
	if len(fixed) > 0 {
		o.FixedIPs = fixed
	}
	var made ports.Port
	err := w.cloud.callOnce(ctx, "create a port on network "+fault.Line(on.Name), func(ctx context.Context) error {
		port, err := ports.Create(ctx, w.session.network, o).Extract()
		if err == nil {
			made = *port
		}
		return err
	})
	return made, err
}

// lookForPort returns the i-th card's port if an earlier call has created it, else nil.
func (w portMaker) lookForPort(ctx context.Context, i int) (*ports.Port, error) {
	there, err := w.finder.portsOf(ctx, w.session, w.VM)
	if at := slices.IndexFunc(there, func(p ports.Port) bool { return w.matchesCard(p, i) }); at >= 0 {
		return &there[at], err
	}
	return nil, err
}

// fixedAddresses returns the static addresses of a card that are in a subnet of its network. It adds a
// warning for each
// other address, because Neutron drops packets with an address that the port does not have.
func (w portMaker) fixedAddresses(ctx context.Context, card inventory.NIC, on networks.Network) ([]ports.IP, error) {
	wanted := guestAddresses(w.Definition, card)
	if len(wanted) == 0 {
		return nil, nil
	}
	var list []subnets.Subnet
	err := w.cloud.retryCall(ctx, "list subnets", func(ctx context.Context) error {
		pages, err := subnets.List(w.session.network, subnets.ListOpts{NetworkID: on.ID}).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = subnets.ExtractSubnets(pages)
		return err
	})
	if err != nil {
		return nil, err
	}
	var fit []ports.IP
	for _, a := range wanted {
		i := slices.IndexFunc(list, func(s subnets.Subnet) bool {
			prefix, err := netip.ParsePrefix(s.CIDR)
			return err == nil && prefix.Contains(a)
		})
		if i < 0 {
			w.warn("address", "change the guest's address, or allow it on the port: openstack port set --allowed-address ip-address="+a.String()+" PORT",
				"the guest has address %v on card %s, which is in no subnet of network %s: it receives no packets there", a, card.MAC, fault.Line(on.Name))
			continue
		}
		fit = append(fit, ports.IP{SubnetID: list[i].ID, IPAddress: a.String()})
	}
	return fit, nil
}

// guestAddresses returns the static addresses that the guest has configured for a card.
func guestAddresses(def targets.Definition, card inventory.NIC) (all []netip.Addr) {
	for _, s := range targets.StaticAddresses(def.VM, def.Guest) {
		if strings.EqualFold(s.MAC, card.MAC) {
			all = append(all, s.Addresses...)
		}
	}
	return all
}
