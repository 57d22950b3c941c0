package openstack

import (
	"context"
	"maps"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"github.com/decamp/decamp/internal/fault"
)

// createServer sends one request for the server and sets w.server. The server gets the ports in the
// order of the cards.
// The networks are "none" if there are no cards; otherwise Nova would add one.
func (w *starter) createServer(ctx context.Context) error {
	metadata, _ := tagMetadata(w.VM)
	maps.Copy(metadata, sourceMetadata(w.VM))
	o := servers.CreateOpts{
		Name: w.machine.name, FlavorRef: w.flavor.ID, AvailabilityZone: w.opts.AvailabilityZone, Metadata: metadata, Networks: "none",
	}
	var cards []servers.Network
	for _, port := range w.ports {
		cards = append(cards, servers.Network{Port: port.ID})
	}
	if len(cards) > 0 {
		o.Networks = cards
	}
	if w.opts.Boot == fromImage {
		o.ImageRef = w.record
	} else {
		o.BlockDevice = w.blockDevices()
	}
	return w.cloud.callOnce(ctx, "create a server", func(ctx context.Context) error {
		made, err := servers.Create(ctx, w.session.compute, o, nil).Extract()
		if err == nil {
			w.server = made.ID
		}
		return err
	})
}

// blockDevices returns the volumes, the boot volume first.
func (w *starter) blockDevices() []servers.BlockDevice {
	device := func(id string, index int) servers.BlockDevice {
		return servers.BlockDevice{
			SourceType: servers.SourceVolume, DestinationType: servers.DestinationVolume, UUID: id,
			BootIndex: index, DeviceType: "disk", DiskBus: w.machine.bus,
		}
	}
	all := []servers.BlockDevice{device(w.record, 0)}
	for _, i := range w.VM.DisksInGuestOrder() {
		if i != w.machine.boot {
			all = append(all, device(w.volumes[i], -1))
		}
	}
	return all
}

// lookForServer sets w.server if an earlier call has created it.
func (w *starter) lookForServer(ctx context.Context) error {
	list, err := w.finder.serversOf(ctx, w.session, w.VM)
	if len(list) > 0 {
		w.server = list[0].ID
	}
	return err
}

// readServer reads the server's state.
func (w *starter) readServer(ctx context.Context) (s *servers.Server, err error) {
	err = w.cloud.retryCall(ctx, "read a server", func(ctx context.Context) error {
		s, err = servers.Get(ctx, w.session.compute, w.server).Extract()
		return err
	})
	return s, err
}

// powerOn starts a server that is off. A conflict means that the server changes its state; the caller
// reads it again.
func (w *starter) powerOn(ctx context.Context) error {
	err := w.cloud.retryCall(ctx, "start a server", func(ctx context.Context) error {
		return servers.Start(ctx, w.session.compute, w.server).ExtractErr()
	})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// clearServer deletes a server that never ran, and waits until its volumes and ports are free. The
// error is
// fault.Transient if the server exists after shortWait polls.
func (w *starter) clearServer(ctx context.Context, id string) error {
	for range shortWait {
		list, err := w.finder.serversOf(ctx, w.session, w.VM)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(list, func(s servers.Server) bool { return s.ID == id })
		if at < 0 {
			return w.waitVolumesFree(ctx, id)
		}
		if err := w.remover.removeServer(ctx, w.session, list[at]); err != nil {
			return err
		}
		if err := w.cloud.wait(ctx, pause); err != nil {
			return err
		}
	}
	return fault.New(fault.Transient, "server %s still exists after its deletion", id).WithHint("openstack%s server delete --force %s", w.cloud.cloudOption(), id)
}

// waitVolumesFree waits until no volume is attached to the server. Nova detaches volumes after it has
// deleted the server.
// The error is fault.Transient after shortWait polls.
func (w *starter) waitVolumesFree(ctx context.Context, server string) error {
	for range shortWait {
		list, err := w.finder.volumesOf(ctx, w.session, w.VM)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list, func(v volumes.Volume) bool {
			return isChanging(v.Status) || len(v.Attachments) > 0 && v.Attachments[0].ServerID == server
		}) {
			return nil
		}
		if err := w.cloud.wait(ctx, pause); err != nil {
			return err
		}
	}
	return fault.New(fault.Transient, "volumes are still attached to server %s", server).WithHint("list them: openstack%s volume list", w.cloud.cloudOption())
}
