package openstack

import (
	"context"
	"fmt"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// remover removes parts of VMs. It is safe for concurrent use.
type remover struct{ finder }

// emptyLooks is the number of consecutive empty listings after which nothing is left. The result of an
// aborted call can
// appear late.
const emptyLooks = 2

// imageLooks is the number of attempts to delete an image that is in use: about a minute.
const imageLooks = 20

// removeAll removes the server, volumes, ports and images of vm. A part that a foreign server uses, and
// a running server,
// are fault.Conflict. If parts still exist after shortWait polls, the error is fault.Transient.
func (r remover) removeAll(ctx context.Context, s *session, vm *inventory.VM) error {
	for look, nothing := 0, 0; look < shortWait; look++ {
		there, err := r.findParts(ctx, s, vm)
		if err != nil {
			return err
		}
		nothing++
		if !there.isEmpty() {
			nothing = 0
			err = r.removeFound(ctx, s, there)
		}
		if nothing == emptyLooks {
			return nil
		}
		// Cinder may be creating a volume from an image, and not list it yet.
		if err != nil && !(there.hasOnlyImages() && fault.Is(err, fault.Conflict) && look < imageLooks) {
			return fmt.Errorf("remove the parts of VM %s: %w", vm.Name, err)
		}
		if err := r.cloud.wait(ctx, pause); err != nil {
			return err
		}
	}
	return fault.New(fault.Transient, "parts of VM %s still exist after their deletion", vm.Name).
		WithHint("list its volumes: openstack%s volume list --property %s=%s", r.cloud.cloudOption(), sourceKey, sourceID(vm))
}

// removeFound deletes the parts on which no other part depends: first servers, then ports and volumes,
// then images. It
// returns after the first of these stages that had parts, and the caller lists the parts again.
func (r remover) removeFound(ctx context.Context, s *session, there *found) error {
	for _, v := range there.servers {
		if err := r.removeServer(ctx, s, v); err != nil {
			return err
		}
	}
	if len(there.servers) > 0 { // volumes and ports are in use until servers are gone
		return nil
	}
	for _, v := range there.volumes { // an attached volume is an error before anything is removed
		if len(v.Attachments) > 0 {
			return r.removeVolume(ctx, s, v)
		}
	}
	for _, port := range there.ports {
		if err := r.removePort(ctx, s, port); err != nil {
			return err
		}
	}
	for _, v := range there.volumes {
		if isChanging(v.Status) {
			continue
		}
		if err := r.removeVolume(ctx, s, v); err != nil {
			return err
		}
	}
	if len(there.volumes) > 0 { // volumes may depend on images
		return nil
	}
	for _, img := range there.images {
		if err := r.removeImage(ctx, s, img.ID); err != nil {
			return err
		}
	}
	return nil
}

// removeServer requests the deletion of a server. A running server is fault.Conflict.
func (r remover) removeServer(ctx context.Context, s *session, v servers.Server) error {
	off := slices.Contains([]string{"SHUTOFF", "ERROR", "BUILD", "SHELVED", "SHELVED_OFFLOADED", "DELETED", "SOFT_DELETED"}, v.Status)
	if !off {
		return fault.New(fault.Conflict, "server %s runs", fault.Line(v.Name)).
			WithHint("shut it down first: openstack%s server stop %s", r.cloud.cloudOption(), v.ID)
	}
	err := r.cloud.retryCall(ctx, "delete a server", func(ctx context.Context) error {
		return servers.Delete(ctx, s.compute, v.ID).ExtractErr()
	})
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) { // the server is gone, or busy and read again
		return nil
	}
	return err
}

// removeVolume requests the deletion of a volume. A volume that a server uses is fault.Conflict.
func (r remover) removeVolume(ctx context.Context, s *session, v volumes.Volume) error {
	for _, a := range v.Attachments {
		if a.ServerID != "" {
			return fault.New(fault.Conflict, "volume %s is in use by server %s, which decamp did not create", fault.Line(v.Name), fault.Line(a.ServerID)).
				WithHint("if that server is not required: openstack%s server delete %s", r.cloud.cloudOption(), fault.Quote(a.ServerID))
		}
	}
	if v.Status == "error_deleting" {
		return fault.New(fault.Transient, "Cinder could not delete volume %s", v.ID).
			WithHint("the cloud's administrator can delete it: openstack volume delete --force %s", v.ID)
	}
	err := r.cloud.retryCall(ctx, "delete a volume", func(ctx context.Context) error {
		return volumes.Delete(ctx, s.volume, v.ID, nil).ExtractErr()
	})
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Invalid) { // the volume is gone, or busy and read again
		return nil
	}
	return err
}

// removePort deletes a port. It returns nil if it does not exist. A port that a server uses is
// fault.Conflict.
func (r remover) removePort(ctx context.Context, s *session, port ports.Port) error {
	if port.DeviceID != "" {
		return fault.New(fault.Conflict, "port %s is in use by %s, which decamp did not create", fault.Line(port.Name), fault.Line(port.DeviceID)).
			WithHint("if that server is not required: openstack%s server delete %s", r.cloud.cloudOption(), fault.Quote(port.DeviceID))
	}
	err := r.cloud.retryCall(ctx, "delete a port", func(ctx context.Context) error {
		return ports.Delete(ctx, s.network, port.ID).ExtractErr()
	})
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// removeImage deletes an image. It returns nil if it does not exist. An image that a volume depends on
// is fault.Conflict.
func (r remover) removeImage(ctx context.Context, s *session, id string) error {
	err := r.cloud.retryCall(ctx, "delete an image", func(ctx context.Context) error {
		return images.Delete(ctx, s.image, id).ExtractErr()
	})
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
