package openstack

import (
	"context"
	"maps"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"github.com/decamp/decamp/internal/fault"
)

func (w *starter) createServer(ctx context.Context) error {
	metadata, _ := inscriptions(w.VM)
	maps.Copy(metadata, mark(w.VM))
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
		o.BlockDevice = w.devices()
	}
	return w.cloud.once(ctx, "make a server", func(ctx context.Context) error {
		made, err := servers.Create(ctx, w.session.compute, o, nil).Extract()
		if err == nil {
			w.server = made.ID
		}
		return err
	})
}

// devices are the volumes, the one to boot from first.
func (w *starter) devices() []servers.BlockDevice {
	device := func(id string, index int) servers.BlockDevice {
		return servers.BlockDevice{
			SourceType: servers.SourceVolume, DestinationType: servers.DestinationVolume, UUID: id,
			BootIndex: index, DeviceType: "disk", DiskBus: w.machine.bus,
		}
	}
	all := []servers.BlockDevice{device(w.record, 0)}
	for _, i := range w.VM.Seated() {
		if i != w.machine.boot {
			all = append(all, device(w.volumes[i], -1))
		}
	}
	return all
}

// lookForServer finds one that was made by a call whose answer was lost.
func (w *starter) lookForServer(ctx context.Context) error {
	list, err := w.finder.serversOf(ctx, w.session, w.VM)
	if len(list) > 0 {
		w.server = list[0].ID
	}
	return err
}

func (w *starter) readServer(ctx context.Context) (s *servers.Server, err error) {
	err = w.cloud.ask(ctx, "look at a server", func(ctx context.Context) error {
		s, err = servers.Get(ctx, w.session.compute, w.server).Extract()
		return err
	})
	return s, err
}

// powerOn has Nova start a server that is off. One that it starts just now is busy, and is looked at again.
func (w *starter) powerOn(ctx context.Context) error {
	err := w.cloud.ask(ctx, "start a server", func(ctx context.Context) error {
		return servers.Start(ctx, w.session.compute, w.server).ExtractErr()
	})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// clearServer deletes a server that never ran, and waits until what it is made of is free.
func (w *starter) clearServer(ctx context.Context, id string) error {
	for range shortWait {
		list, err := w.finder.serversOf(ctx, w.session, w.VM)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(list, func(s servers.Server) bool { return s.ID == id })
		if at < 0 {
			return w.freed(ctx, id)
		}
		if err := w.remover.removeServer(ctx, w.session, list[at]); err != nil {
			return err
		}
		if err := w.cloud.wait(ctx, pause); err != nil {
			return err
		}
	}
	return fault.New(fault.Transient, "server %s does not go away", id).WithHint("openstack%s server delete --force %s", w.cloud.option(), id)
}

// freed waits until no volume is a server's any more: Cinder is told when Nova is through.
func (w *starter) freed(ctx context.Context, server string) error {
	for range shortWait {
		list, err := w.finder.volumesOf(ctx, w.session, w.VM)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list, func(v volumes.Volume) bool {
			return moving(v.Status) || len(v.Attachments) > 0 && v.Attachments[0].ServerID == server
		}) {
			return nil
		}
		if err := w.cloud.wait(ctx, pause); err != nil {
			return err
		}
	}
	return fault.New(fault.Transient, "volumes are still those of server %s", server).WithHint("look at them: openstack%s volume list", w.cloud.option())
}
