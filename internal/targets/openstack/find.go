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

// found contains everything that was created for a VM.
type found struct {
	servers []servers.Server // servers that Start created
	volumes []volumes.Volume // oldest first
	ports   []ports.Port     // ports of cards
	images  []images.Image   // images of disks, usually temporary
}

// isEmpty reports whether there is nothing.
func (f *found) isEmpty() bool { return len(f.servers)+len(f.volumes)+len(f.ports)+len(f.images) == 0 }

// hasOnlyImages reports whether there are images, and no volume or server that could use them.
func (f *found) hasOnlyImages() bool { return len(f.servers)+len(f.volumes) == 0 && len(f.images) > 0 }

// finder finds parts of VMs by their marks. It is safe for concurrent use.
type finder struct{ cloud *cloud }

// findParts returns all parts of vm.
func (f finder) findParts(ctx context.Context, s *session, vm *inventory.VM) (*found, error) {
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

// serversOf lists the servers with vm's mark.
func (f finder) serversOf(ctx context.Context, s *session, vm *inventory.VM) (list []servers.Server, err error) {
	err = f.cloud.retryCall(ctx, "list servers", func(ctx context.Context) error {
		pages, err := servers.List(s.compute, servers.ListOpts{}).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = servers.ExtractServers(pages)
		return err
	})
	return slices.DeleteFunc(list, func(v servers.Server) bool { return !isMadeOf(v.Metadata, vm) }), err
}

// volumesOf lists the volumes with vm's mark, oldest first.
func (f finder) volumesOf(ctx context.Context, s *session, vm *inventory.VM) (list []volumes.Volume, err error) {
	list, err = f.listVolumes(ctx, s, volumes.ListOpts{Metadata: map[string]string{sourceKey: sourceID(vm)}})
	return slices.DeleteFunc(list, func(v volumes.Volume) bool { return !isMadeOf(v.Metadata, vm) }), err
}

// listVolumes lists volumes, oldest first. If a repeated call has created two, all callers choose the
// same one.
func (f finder) listVolumes(ctx context.Context, s *session, o volumes.ListOpts) (list []volumes.Volume, err error) {
	err = f.cloud.retryCall(ctx, "list volumes", func(ctx context.Context) error {
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

// portsOf lists the ports with vm's mark.
func (f finder) portsOf(ctx context.Context, s *session, vm *inventory.VM) ([]ports.Port, error) {
	list, err := f.listPorts(ctx, s, ports.ListOpts{Description: portMark(vm)})
	return slices.DeleteFunc(list, func(v ports.Port) bool { return v.Description != portMark(vm) }), err
}

// listPorts lists ports.
func (f finder) listPorts(ctx context.Context, s *session, o ports.ListOpts) (list []ports.Port, err error) {
	err = f.cloud.retryCall(ctx, "list ports", func(ctx context.Context) error {
		pages, err := ports.List(s.network, o).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = ports.ExtractPorts(pages)
		return err
	})
	return list, err
}

// imagesOf lists the images with vm's mark.
func (f finder) imagesOf(ctx context.Context, s *session, vm *inventory.VM) (list []images.Image, err error) {
	err = f.cloud.retryCall(ctx, "list images", func(ctx context.Context) error {
		pages, err := images.List(s.image, images.ListOpts{Tags: []string{imageTag(vm)}}).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err = images.ExtractImages(pages)
		return err
	})
	return slices.DeleteFunc(list, func(v images.Image) bool { return !isMadeOf(textProperties(v), vm) }), err
}

// textProperties returns the properties of an image that are strings.
func textProperties(v images.Image) map[string]string {
	all := map[string]string{}
	for key, value := range v.Properties {
		if s, ok := value.(string); ok {
			all[key] = s
		}
	}
	return all
}

// completedRecord returns the ID of the complete record and the hash of its images, or "" if there is
// none.
func (f *found) completedRecord() (id, contents string) {
	for _, v := range f.volumes {
		if c := v.Metadata[completeKey]; c != "" {
			return v.ID, c
		}
	}
	for _, v := range f.images {
		if c := textProperties(v)[completeKey]; c != "" {
			return v.ID, c
		}
	}
	return "", ""
}

// checkNames returns fault.Conflict if a foreign server has the name, or a foreign volume the name of
// the boot volume.
func (f finder) checkNames(ctx context.Context, s *session, vm *inventory.VM, name string) error {
	var list []servers.Server
	err := f.cloud.retryCall(ctx, "list servers", func(ctx context.Context) error {
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
		if v.Name == name && !isMadeOf(v.Metadata, vm) {
			return f.nameTakenError("server", v.ID, name)
		}
	}
	record := volumeName(name, bootDisk(vm))
	there, err := f.listVolumes(ctx, s, volumes.ListOpts{Name: record})
	for _, v := range there {
		if v.Name == record && !isMadeOf(v.Metadata, vm) {
			return f.nameTakenError("volume", v.ID, record)
		}
	}
	return err
}

// nameTakenError returns the error for a foreign server or volume with the name.
func (f finder) nameTakenError(what, id, name string) error {
	return fault.New(fault.Conflict, "%s %s already has the name %s", what, fault.Line(id), name).
		WithHint("rename one of the two: openstack%s %s set --name %s %s", f.cloud.cloudOption(), what, fault.Quote(cmp.Or(name, "vm")+"-old"), fault.Quote(id))
}
