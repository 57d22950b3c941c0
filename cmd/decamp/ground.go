package main

import (
	"context"
	"slices"

	"github.com/decamp/decamp/internal/inventory"
)

// ground is what VMs of a source stand on.
type ground struct {
	hosts  []inventory.Host
	stores []inventory.Datastore
}

func readGround(ctx context.Context, s source) (g ground, err error) {
	if g.hosts, err = s.Hosts(ctx); err != nil {
		return g, err
	}
	g.stores, err = s.Datastores(ctx)
	return g, err
}

// narrow keeps of hosts and datastores those that the VMs are on.
func (d *diagnosis) narrow(g ground) {
	type store struct{ datacenter, name string }
	on, uses := map[inventory.MoRef]bool{}, map[store]bool{}
	for i := range d.vms {
		vm := &d.vms[i]
		on[vm.Host] = true
		for _, disk := range vm.Disks {
			uses[store{vm.Datacenter, disk.Path.Datastore}] = true
			uses[store{vm.Datacenter, disk.Base.Datastore}] = true
		}
	}
	d.hosts = slices.DeleteFunc(slices.Clone(g.hosts), func(h inventory.Host) bool { return !on[h.Ref] })
	d.stores = slices.DeleteFunc(slices.Clone(g.stores), func(s inventory.Datastore) bool { return !uses[store{s.Datacenter, s.Name}] })
}

// isFirst reports whether no VM was moved from a host yet.
func (s *planSource) isFirst(host inventory.MoRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.begun[host]
	s.begun[host] = true
	return first
}

// stand returns what the VMs stand on, read once: not once for each of a thousand hosts.
func (s *planSource) stand(ctx context.Context) (ground, error) {
	s.mu.Lock()
	g := s.ground
	s.mu.Unlock()
	if g != nil {
		return *g, nil
	}
	read, err := readGround(ctx, s.session)
	if err != nil {
		return read, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ground = &read
	return read, nil
}
