package openstack

import (
	"context"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/decamp/decamp/internal/inventory"
)

// found is all that was made of a VM.
type found struct {
	servers []servers.Server
	volumes []volumes.Volume
	ports   []ports.Port
	images  []images.Image
}

func (f *found) empty() bool { return len(f.servers)+len(f.volumes)+len(f.ports)+len(f.images) == 0 }

// needless reports whether there are images, and nothing that is seen to need them.
func (f *found) needless() bool { return len(f.servers)+len(f.volumes) == 0 && len(f.images) > 0 }

// find looks for all that was made of vm.
func (p *Place) find(ctx context.Context, s *session, vm *inventory.VM) (*found, error) {
	f := &found{}
	var err error
	if f.servers, err = p.serversOf(ctx, s, vm); err != nil {
		return nil, err
	}
	if f.volumes, err = p.volumesOf(ctx, s, vm); err != nil {
		return nil, err
	}
	if f.ports, err = p.portsOf(ctx, s, vm); err != nil {
		return nil, err
	}
	f.images, err = p.imagesOf(ctx, s, vm)
	return f, err
}

func (p *Place) serversOf(ctx context.Context, s *session, vm *inventory.VM) (list []servers.Server, err error) {
	err = p.cloud.ask(ctx, "list servers", func(ctx context.Context) error {
		pages, err := servers.List(s.compute, servers.ListOpts{}).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = servers.ExtractServers(pages)
		return err
	})
	return slices.DeleteFunc(list, func(v servers.Server) bool { return !made(v.Metadata, vm) }), err
}

func (p *Place) volumesOf(ctx context.Context, s *session, vm *inventory.VM) (list []volumes.Volume, err error) {
	list, err = p.listVolumes(ctx, s, volumes.ListOpts{Metadata: map[string]string{sourceKey: identity(vm)}})
	return slices.DeleteFunc(list, func(v volumes.Volume) bool { return !made(v.Metadata, vm) }), err
}

// listVolumes lists them, the oldest first: of two that were made by one call that was repeated, all who
// look choose the same.
func (p *Place) listVolumes(ctx context.Context, s *session, o volumes.ListOpts) (list []volumes.Volume, err error) {
	err = p.cloud.ask(ctx, "list volumes", func(ctx context.Context) error {
		pages, err := volumes.List(s.volume, o).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = volumes.ExtractVolumes(pages)
		return err
	})
	slices.SortStableFunc(list, func(a, b volumes.Volume) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list, err
}

func (p *Place) portsOf(ctx context.Context, s *session, vm *inventory.VM) ([]ports.Port, error) {
	list, err := p.listPorts(ctx, s, ports.ListOpts{Description: portMark(vm)})
	return slices.DeleteFunc(list, func(v ports.Port) bool { return v.Description != portMark(vm) }), err
}

func (p *Place) listPorts(ctx context.Context, s *session, o ports.ListOpts) (list []ports.Port, err error) {
	err = p.cloud.ask(ctx, "list ports", func(ctx context.Context) error {
		pages, err := ports.List(s.network, o).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = ports.ExtractPorts(pages)
		return err
	})
	return list, err
}

func (p *Place) imagesOf(ctx context.Context, s *session, vm *inventory.VM) (list []images.Image, err error) {
	err = p.cloud.ask(ctx, "list images", func(ctx context.Context) error {
		pages, err := images.List(s.image, images.ListOpts{Tags: []string{tag(vm)}}).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = images.ExtractImages(pages)
		return err
	})
	return slices.DeleteFunc(list, func(v images.Image) bool { return !made(properties(v), vm) }), err
}

// properties are those of an image that are text.
func properties(v images.Image) map[string]string {
	all := map[string]string{}
	for key, value := range v.Properties {
		if s, ok := value.(string); ok {
			all[key] = s
		}
	}
	return all
}

// record is what says that a delivery is complete, and of which images; "" if nothing does.
func (f *found) record() (id, contents string) {
	for _, v := range f.volumes {
		if c := v.Metadata[completeKey]; c != "" {
			return v.ID, c
		}
	}
	for _, v := range f.images {
		if c := properties(v)[completeKey]; c != "" {
			return v.ID, c
		}
	}
	return "", ""
}
