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

// portName tells the cards of a VM apart.
func (w *delivery) portName(i int) string { return fmt.Sprintf("%s-net%d", w.machine.name, i) }

// A portMaker makes the ports of a VM's cards.
type portMaker struct{ *delivery }

// makePorts gives each card a port, and removes those of an earlier delivery that are none of them.
func (w portMaker) makePorts(ctx context.Context) error {
	there, err := w.finder.portsOf(ctx, w.session, w.VM)
	if err != nil {
		return err
	}
	for i, card := range w.VM.NICs {
		at := slices.IndexFunc(there, func(p ports.Port) bool { return w.suits(p, i) })
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

// suits reports whether a port of ours is the one of a card.
func (w portMaker) suits(p ports.Port, i int) bool {
	card := w.VM.NICs[i]
	return p.Name == w.portName(i) && p.NetworkID == w.nets[i].ID && p.AdminStateUp != card.LinkDown() &&
		(w.opts.MACs == newMACs || strings.EqualFold(p.MACAddress, card.MAC))
}

// makePort makes one. Of an answer that was lost it finds out what it was.
func (w portMaker) makePort(ctx context.Context, i int, on networks.Network) (ports.Port, error) {
	card := w.VM.NICs[i]
	fixed, err := w.fixed(ctx, card, on)
	if err != nil {
		return ports.Port{}, err
	}
	for try := 1; ; try++ {
		port, err := w.createPort(ctx, i, on, fixed)
		switch {
		case err == nil:
			return port, nil
		case fault.Is(err, fault.Conflict) && len(fixed) > 0 && strings.Contains(err.Error(), "IpAddress"):
			w.warn("address", "see who has it: openstack port list --fixed-ip ip-address="+fixed[0].IPAddress,
				"an address of card %s is taken on network %s: %s", card.MAC, fault.Line(on.Name), err.Error())
			fixed = nil
			continue
		case fault.Is(err, fault.Denied):
			return port, fault.New(fault.Denied, "%w", err).WithHint("who does not own network %s may not choose addresses on it: "+
				"take one of the project's with network=, have the role admin, or leave the MAC with mac=new", fault.Line(on.Name))
		case !fault.Is(err, fault.Conflict) && (!passes(err) || try == createTries):
			return port, err
		}
		there, look := w.lookForPort(ctx, i)
		if look != nil || there != nil {
			return deref(there), look
		}
		if fault.Is(err, fault.Conflict) {
			return port, fault.New(fault.Conflict, "the address is taken on network %s: %w", fault.Line(on.Name), err).
				WithHint("see who has it: openstack%s port list --mac-address %s; or leave it with mac=new", w.cloud.option(), card.MAC)
		}
		if err := w.cloud.wait(ctx, pause); err != nil {
			return port, err
		}
	}
}

func deref(p *ports.Port) ports.Port {
	if p == nil {
		return ports.Port{}
	}
	return *p
}

// createTries is how often something is asked for whose answer is lost.
const createTries = 10

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
	err := w.cloud.once(ctx, "make a port on network "+fault.Line(on.Name), func(ctx context.Context) error {
		port, err := ports.Create(ctx, w.session.network, o).Extract()
		if err == nil {
			made = *port
		}
		return err
	})
	return made, err
}

// lookForPort finds a port that was made by a call whose answer was lost.
func (w portMaker) lookForPort(ctx context.Context, i int) (*ports.Port, error) {
	there, err := w.finder.portsOf(ctx, w.session, w.VM)
	if at := slices.IndexFunc(there, func(p ports.Port) bool { return w.suits(p, i) }); at >= 0 {
		return &there[at], err
	}
	return nil, err
}

// fixed are the addresses of a card that fit a subnet of its network. Neutron lets none through that a port
// does not have.
func (w portMaker) fixed(ctx context.Context, card inventory.NIC, on networks.Network) ([]ports.IP, error) {
	wanted := addresses(w.Definition, card)
	if len(wanted) == 0 {
		return nil, nil
	}
	var list []subnets.Subnet
	err := w.cloud.ask(ctx, "list subnets", func(ctx context.Context) error {
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
			w.warn("address", "give the guest another address, or the port this one: openstack port set --allowed-address ip-address="+a.String()+" PORT",
				"the guest has address %v on card %s, which no subnet of network %s has: it gets no packets there", a, card.MAC, fault.Line(on.Name))
			continue
		}
		fit = append(fit, ports.IP{SubnetID: list[i].ID, IPAddress: a.String()})
	}
	return fit, nil
}

// addresses returns the static addresses that the guest has configured for a card.
func addresses(def targets.Definition, card inventory.NIC) (all []netip.Addr) {
	for _, s := range targets.StaticAddresses(def.VM, def.Guest) {
		if strings.EqualFold(s.MAC, card.MAC) {
			all = append(all, s.Addresses...)
		}
	}
	return all
}
