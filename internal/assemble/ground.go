package assemble

import (
	"context"
	"slices"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/inventory"
)

// Ground is what VMs of a source stand on.
type Ground struct {
	hosts  []inventory.Host
	stores []inventory.Datastore
}

func ReadGround(ctx context.Context, s *esx.Session) (g Ground, err error) {
	if g.hosts, err = s.Hosts(ctx); err != nil {
		return g, err
	}
	g.stores, err = s.Datastores(ctx)
	return g, err
}

// narrow keeps of hosts and datastores those that the VMs are on.
func (d *Diagnosis) narrow(g Ground) {
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
