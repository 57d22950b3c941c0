package openstack

import (
	"context"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// removeServer asks for a server to be deleted. One that runs is fault.Conflict.
func (p *Place) removeServer(ctx context.Context, s *session, v servers.Server) error {
	off := slices.Contains([]string{"SHUTOFF", "ERROR", "BUILD", "SHELVED", "SHELVED_OFFLOADED", "DELETED", "SOFT_DELETED"}, v.Status)
	if !off {
		return fault.New(fault.Conflict, "server %s runs", fault.Line(v.Name)).
			WithHint("shut it down first: openstack%s server stop %s", p.cloud.option(), v.ID)
	}
	err := p.cloud.ask(ctx, "delete a server", func(ctx context.Context) error {
		return servers.Delete(ctx, s.compute, v.ID).ExtractErr()
	})
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) { // gone, or busy: it is looked at again
		return nil
	}
	return err
}

// checkNames refuses a name that another's server or record has: nobody could tell them apart.
func (p *Place) checkNames(ctx context.Context, s *session, vm *inventory.VM, name string) error {
	var list []servers.Server
	err := p.cloud.ask(ctx, "list servers", func(ctx context.Context) error {
		pages, err := servers.List(s.compute, servers.ListOpts{}).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = servers.ExtractServers(pages)
		return err
	})
	if err != nil {
		return err
	}
	for _, v := range list {
		if v.Name == name && !made(v.Metadata, vm) {
			return p.nameTaken("server", v.ID, name)
		}
	}
	record := volumeName(name, bootDisk(vm))
	there, err := p.listVolumes(ctx, s, volumes.ListOpts{Name: record})
	for _, v := range there {
		if v.Name == record && !made(v.Metadata, vm) {
			return p.nameTaken("volume", v.ID, record)
		}
	}
	return err
}
