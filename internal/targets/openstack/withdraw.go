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

// A remover removes what was made of VMs, and nothing else. It has no state but the login and is safe for concurrent use.
type remover struct{ finder }

// surely is how often nothing has to be seen: what was made by a call that was cut off may appear late.
const surely = 2

// imageLooks is how often an image is tried to be deleted that something needs: for a minute.
const imageLooks = 20

// remove removes what was made of vm: server, volumes, ports and images. What a server of somebody else's uses is
// fault.Conflict, and so is a server that runs.
func (r remover) remove(ctx context.Context, s *session, vm *inventory.VM) error {
	for look, nothing := 0, 0; look < shortWait; look++ {
		there, err := r.find(ctx, s, vm)
		if err != nil {
			return err
		}
		nothing++
		if !there.empty() {
			nothing = 0
			err = r.removeFound(ctx, s, there)
		}
		if nothing == surely {
			return nil
		}
		// A volume that no list shows yet may be made of an image just now.
		if err != nil && !(there.needless() && fault.Is(err, fault.Conflict) && look < imageLooks) {
			return fmt.Errorf("remove what was made of VM %s: %w", vm.Name, err)
		}
		if err := r.cloud.wait(ctx, pause); err != nil {
			return err
		}
	}
	return fault.New(fault.Transient, "what was made of VM %s does not go away", vm.Name).
		WithHint("look at it: openstack%s volume list --property %s=%s", r.cloud.option(), sourceKey, identity(vm))
}

// removeFound asks for what there is to be deleted, as far as nothing of it hangs on another.
func (r remover) removeFound(ctx context.Context, s *session, there *found) error {
	for _, v := range there.servers {
		if err := r.removeServer(ctx, s, v); err != nil {
			return err
		}
	}
	if len(there.servers) > 0 { // until they are gone, volumes and ports are theirs
		return nil
	}
	for _, v := range there.volumes { // what cannot go stops all before anything goes
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
		if moving(v.Status) {
			continue
		}
		if err := r.removeVolume(ctx, s, v); err != nil {
			return err
		}
	}
	if len(there.volumes) > 0 { // images may be needed until they are gone
		return nil
	}
	for _, img := range there.images {
		if err := r.removeImage(ctx, s, img.ID); err != nil {
			return err
		}
	}
	return nil
}

// removeServer asks for a server to be deleted. One that runs is fault.Conflict.
func (r remover) removeServer(ctx context.Context, s *session, v servers.Server) error {
	off := slices.Contains([]string{"SHUTOFF", "ERROR", "BUILD", "SHELVED", "SHELVED_OFFLOADED", "DELETED", "SOFT_DELETED"}, v.Status)
	if !off {
		return fault.New(fault.Conflict, "server %s runs", fault.Line(v.Name)).
			WithHint("shut it down first: openstack%s server stop %s", r.cloud.option(), v.ID)
	}
	err := r.cloud.ask(ctx, "delete a server", func(ctx context.Context) error {
		return servers.Delete(ctx, s.compute, v.ID).ExtractErr()
	})
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) { // gone, or busy: it is looked at again
		return nil
	}
	return err
}

// removeVolume asks for a volume to be deleted, unless a server of somebody else's has it.
func (r remover) removeVolume(ctx context.Context, s *session, v volumes.Volume) error {
	for _, a := range v.Attachments {
		if a.ServerID != "" {
			return fault.New(fault.Conflict, "volume %s is in use by server %s, which decamp did not make", fault.Line(v.Name), fault.Line(a.ServerID)).
				WithHint("if that server is not wanted: openstack%s server delete %s", r.cloud.option(), fault.Quote(a.ServerID))
		}
	}
	if v.Status == "error_deleting" {
		return fault.New(fault.Transient, "Cinder could not delete volume %s", v.ID).
			WithHint("who runs the cloud can: openstack volume delete --force %s", v.ID)
	}
	err := r.cloud.ask(ctx, "delete a volume", func(ctx context.Context) error {
		return volumes.Delete(ctx, s.volume, v.ID, nil).ExtractErr()
	})
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Invalid) { // gone, or busy with something: it is looked at again
		return nil
	}
	return err
}

// removePort deletes a port, unless a server of somebody else's has it. That there is none is no error.
func (r remover) removePort(ctx context.Context, s *session, port ports.Port) error {
	if port.DeviceID != "" {
		return fault.New(fault.Conflict, "port %s is in use by %s, which decamp did not make", fault.Line(port.Name), fault.Line(port.DeviceID)).
			WithHint("if that server is not wanted: openstack%s server delete %s", r.cloud.option(), fault.Quote(port.DeviceID))
	}
	err := r.cloud.ask(ctx, "delete a port", func(ctx context.Context) error {
		return ports.Delete(ctx, s.network, port.ID).ExtractErr()
	})
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// removeImage deletes an image. That there is none is no error; one that volumes need is fault.Conflict.
func (r remover) removeImage(ctx context.Context, s *session, id string) error {
	err := r.cloud.ask(ctx, "delete an image", func(ctx context.Context) error {
		return images.Delete(ctx, s.image, id).ExtractErr()
	})
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
