package openstack

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// start makes the server, where one is wanted, and waits until it runs.
func (w *delivery) start(ctx context.Context, there *found) error {
	if !w.opts.Start {
		return nil
	}
	if len(there.servers) > 0 {
		w.server = there.servers[0].ID
		return nil
	}
	for try := 1; ; try++ {
		err := w.createServer(ctx)
		if err != nil && (!passes(err) || try == createTries) {
			return err
		}
		if w.server == "" { // the answer was lost
			if err := w.lookForServer(ctx); err != nil {
				return err
			}
		}
		if w.server != "" {
			return w.awaitServer(ctx)
		}
		if err := w.cloud.wait(ctx, pause); err != nil {
			return err
		}
	}
}

func (w *delivery) createServer(ctx context.Context) error {
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
func (w *delivery) devices() []servers.BlockDevice {
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
func (w *delivery) lookForServer(ctx context.Context) error {
	list, err := w.serversOf(ctx, w.session, w.VM)
	if len(list) > 0 {
		w.server = list[0].ID
	}
	return err
}

// awaitServer waits until the server runs.
func (w *delivery) awaitServer(ctx context.Context) error {
	for range shortWait {
		s, err := w.readServer(ctx)
		if err != nil {
			return err
		}
		switch s.Status {
		case "ACTIVE":
			return nil
		case "ERROR":
			kind := fault.Transient
			if strings.Contains(s.Fault.Message, "No valid host") {
				kind = fault.Full
			}
			return fault.New(kind, "Nova could not start server %s: %s", s.ID, fault.Line(s.Fault.Message)).
				WithHint("another flavor or zone may have room: flavor=NAME, availabilityZone=ZONE; or leave start=true out, and look at it in peace")
		}
		if err := w.cloud.wait(ctx, poll); err != nil {
			return err
		}
	}
	return fault.New(fault.Transient, "server %s does not get active", w.server).WithHint("look at it: openstack%s server show %s", w.cloud.option(), w.server)
}

func (w *delivery) readServer(ctx context.Context) (s *servers.Server, err error) {
	err = w.cloud.ask(ctx, "look at a server", func(ctx context.Context) error {
		s, err = servers.Get(ctx, w.session.compute, w.server).Extract()
		return err
	})
	return s, err
}

// stop removes a server that this delivery made, and nothing else.
func (w *delivery) stop(ctx context.Context) error {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	list, err := w.serversOf(late, w.session, w.VM)
	for _, s := range list {
		if err := w.removeServer(late, w.session, s, s.ID); err != nil {
			return err
		}
	}
	return err
}

// removeServer asks for a server to be deleted. One that runs is fault.Conflict, unless it is force.
func (p *Place) removeServer(ctx context.Context, s *session, v servers.Server, force string) error {
	off := slices.Contains([]string{"SHUTOFF", "ERROR", "BUILD", "SHELVED", "SHELVED_OFFLOADED", "DELETED", "SOFT_DELETED"}, v.Status)
	if !off && v.ID != force {
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
