package openstack

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/decamp/decamp/internal/fault"
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

// A finder finds what was made of VMs, by the marks on it. It has no state but the login and is safe for concurrent use.
type finder struct{ cloud *cloud }

// find looks for all that was made of vm.
func (f finder) find(ctx context.Context, s *session, vm *inventory.VM) (*found, error) {
	there := &found{}
	var err error
	if there.servers, err = f.serversOf(ctx, s, vm); err != nil {
		return nil, err
	}
	if there.volumes, err = f.volumesOf(ctx, s, vm); err != nil {
		return nil, err
	}
	if there.ports, err = f.portsOf(ctx, s, vm); err != nil {
		return nil, err
	}
	there.images, err = f.imagesOf(ctx, s, vm)
	return there, err
}

func (f finder) serversOf(ctx context.Context, s *session, vm *inventory.VM) (list []servers.Server, err error) {
	err = f.cloud.ask(ctx, "list servers", func(ctx context.Context) error {
		pages, err := servers.List(s.compute, servers.ListOpts{}).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = servers.ExtractServers(pages)
		return err
	})
	return slices.DeleteFunc(list, func(v servers.Server) bool { return !made(v.Metadata, vm) }), err
}

func (f finder) volumesOf(ctx context.Context, s *session, vm *inventory.VM) (list []volumes.Volume, err error) {
	list, err = f.listVolumes(ctx, s, volumes.ListOpts{Metadata: map[string]string{sourceKey: identity(vm)}})
	return slices.DeleteFunc(list, func(v volumes.Volume) bool { return !made(v.Metadata, vm) }), err
}

// listVolumes lists them, the oldest first: of two that were made by one call that was repeated, all who
// look choose the same.
func (f finder) listVolumes(ctx context.Context, s *session, o volumes.ListOpts) (list []volumes.Volume, err error) {
	err = f.cloud.ask(ctx, "list volumes", func(ctx context.Context) error {
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

func (f finder) portsOf(ctx context.Context, s *session, vm *inventory.VM) ([]ports.Port, error) {
	list, err := f.listPorts(ctx, s, ports.ListOpts{Description: portMark(vm)})
	return slices.DeleteFunc(list, func(v ports.Port) bool { return v.Description != portMark(vm) }), err
}

func (f finder) listPorts(ctx context.Context, s *session, o ports.ListOpts) (list []ports.Port, err error) {
	err = f.cloud.ask(ctx, "list ports", func(ctx context.Context) error {
		pages, err := ports.List(s.network, o).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = ports.ExtractPorts(pages)
		return err
	})
	return list, err
}

func (f finder) imagesOf(ctx context.Context, s *session, vm *inventory.VM) (list []images.Image, err error) {
	err = f.cloud.ask(ctx, "list images", func(ctx context.Context) error {
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

// checkNames refuses a name that another's server or record has: nobody could tell them apart.
func (f finder) checkNames(ctx context.Context, s *session, vm *inventory.VM, name string) error {
	var list []servers.Server
	err := f.cloud.ask(ctx, "list servers", func(ctx context.Context) error {
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
			return f.nameTaken("server", v.ID, name)
		}
	}
	record := volumeName(name, bootDisk(vm))
	there, err := f.listVolumes(ctx, s, volumes.ListOpts{Name: record})
	for _, v := range there {
		if v.Name == record && !made(v.Metadata, vm) {
			return f.nameTaken("volume", v.ID, record)
		}
	}
	return err
}

// nameTaken says that something of somebody else's has the name.
func (f finder) nameTaken(what, id, name string) error {
	return fault.New(fault.Conflict, "%s %s is called %s already", what, fault.Line(id), name).
		WithHint("rename one of the two: openstack%s %s set --name %s %s", f.cloud.option(), what, fault.Quote(cmp.Or(name, "vm")+"-old"), fault.Quote(id))
}
