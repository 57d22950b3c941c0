package openstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/target"
	"github.com/decamp/decamp/internal/target/staged"
)

var _ staged.Starter = (*Place)(nil)

// Start makes the server of what was delivered, once, or powers on the one that it made before, and returns
// when it is active. A server that Nova could not bring up is removed again: it has the volumes and ports, and
// would be in the way of the next.
func (p *Place) Start(ctx context.Context, def target.Definition) (target.Started, error) {
	w, err := p.begin(ctx, staged.Delivery{Definition: def})
	if err != nil {
		return target.Started{}, err
	}
	there, err := p.find(ctx, w.session, def.VM)
	if err != nil {
		return target.Started{}, err
	}
	for _, step := range []func(context.Context, *found) error{w.recall, w.findServer, w.makeServer} {
		if err := step(ctx, there); err != nil {
			return target.Started{}, err
		}
	}
	if err := w.awaitServer(ctx); err != nil {
		return target.Started{}, err
	}
	return target.Started{Console: "openstack" + p.cloud.option() + " console url show " + w.server}, nil
}

// recall takes what was delivered for what the server is made of. What a server of somebody else's has may
// run already: the command that makes one is printed.
func (w *delivery) recall(ctx context.Context, there *found) error {
	id, of := there.record()
	if id == "" {
		if err := w.checkNames(ctx, w.session, w.VM, w.machine.name); err != nil {
			return err
		}
		return fault.New(fault.NotFound, "there is nothing of VM %s on %s that a server could be made of", w.VM.Name, w.cloud.name).
			WithHint("see what there is: openstack%s volume list --property %s=%s", w.cloud.option(), sourceKey, identity(w.VM))
	}
	if of != w.contents {
		return w.outdated(id)
	}
	use := func(what, name, server string) error {
		if server == "" || slices.ContainsFunc(there.servers, func(s servers.Server) bool { return s.ID == server }) {
			return nil
		}
		return fault.New(fault.Conflict, "%s %s is in use by server %s, which decamp did not make", what, fault.Line(name), fault.Line(server)).
			WithHint("if that one is the VM, it was started by hand, and nothing is left to do: openstack%s server show %s", w.cloud.option(), fault.Quote(server))
	}
	for _, v := range there.volumes {
		for _, a := range v.Attachments {
			if err := use("volume", v.Name, a.ServerID); err != nil {
				return err
			}
		}
	}
	for _, port := range there.ports {
		if err := use("port", port.Name, port.DeviceID); err != nil {
			return err
		}
	}
	return w.adopt(there, id)
}

// stillborn reports whether Nova could not bring a server up, and no guest ever wrote to its disks.
func stillborn(s servers.Server) bool { return s.Status == "ERROR" && s.LaunchedAt.IsZero() }

// findServer takes the server that there is, and removes what a Start that was cut off left of one.
func (w *delivery) findServer(ctx context.Context, there *found) error {
	for _, s := range there.servers {
		if stillborn(s) {
			if err := w.clearServer(ctx, s.ID); err != nil {
				return err
			}
		} else if w.server == "" {
			w.server = s.ID
		}
	}
	return nil
}

// makeServer makes one, if there is none. Of an answer that was lost it finds out what it was.
func (w *delivery) makeServer(ctx context.Context, _ *found) error {
	for try := 1; w.server == ""; try++ {
		err := w.createServer(ctx)
		if err == nil {
			return nil
		}
		if !passes(err) || try == createTries {
			return err
		}
		if err := w.lookForServer(ctx); err != nil || w.server != "" {
			return err
		}
		if err := w.cloud.wait(ctx, pause); err != nil {
			return err
		}
	}
	return nil
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

// wake is what makes servers active again that somebody put to rest, by status.
var wake = map[string]string{
	"PAUSED": "unpause", "SUSPENDED": "resume", "SHELVED": "unshelve", "SHELVED_OFFLOADED": "unshelve", "RESCUE": "unrescue",
}

// awaitServer waits until the server runs. One that is off is powered on.
func (w *delivery) awaitServer(ctx context.Context) error {
	ordered := false
	for range shortWait {
		s, err := w.readServer(ctx)
		if err != nil {
			return err
		}
		switch {
		case s.Status == "ACTIVE":
			return nil
		case s.Status == "ERROR":
			return w.failed(ctx, *s)
		case s.Status == "SHUTOFF" && !ordered:
			ordered = true
			err = w.powerOn(ctx)
		case wake[s.Status] != "":
			return fault.New(fault.Conflict, "server %s is %s", s.ID, s.Status).
				WithHint("who put it to rest decides: openstack%s server %s %s", w.cloud.option(), wake[s.Status], s.ID)
		}
		if err != nil {
			return err
		}
		if err := w.cloud.wait(ctx, poll); err != nil {
			return err
		}
	}
	return fault.New(fault.Conflict, "server %s does not get active", w.server).WithHint("look at it: openstack%s server show %s", w.cloud.option(), w.server)
}

func (w *delivery) readServer(ctx context.Context) (s *servers.Server, err error) {
	err = w.cloud.ask(ctx, "look at a server", func(ctx context.Context) error {
		s, err = servers.Get(ctx, w.session.compute, w.server).Extract()
		return err
	})
	return s, err
}

// powerOn has Nova start a server that is off. One that it starts just now is busy, and is looked at again.
func (w *delivery) powerOn(ctx context.Context) error {
	err := w.cloud.ask(ctx, "start a server", func(ctx context.Context) error {
		return servers.Start(ctx, w.session.compute, w.server).ExtractErr()
	})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// failed is what becomes of a server in ERROR. One that ran before stays: with boot=image the guest's disk is its.
// What it is made of stays. The address cannot name another flavor now: it would be that of another run.
func (w *delivery) failed(ctx context.Context, s servers.Server) error {
	if !stillborn(s) {
		return fault.New(fault.Conflict, "server %s ran, and has an error now: %s", s.ID, fault.Line(s.Fault.Message)).
			WithHint("if nothing else is wrong: openstack%s server reboot --hard %s", w.cloud.option(), s.ID)
	}
	kind := fault.Transient
	if strings.Contains(s.Fault.Message, "No valid host") {
		kind = fault.Full
	}
	why := fault.New(kind, "Nova could not start server %s, which is removed again: %s", s.ID, fault.Line(s.Fault.Message)).
		WithHint("have room made for it; or make it by hand, with another flavor or zone: %s", w.command())
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := w.clearServer(late, s.ID); err != nil {
		return errors.Join(why, fmt.Errorf("remove it: %w", err))
	}
	return why
}

// clearServer deletes a server that never ran, and waits until what it is made of is free.
func (w *delivery) clearServer(ctx context.Context, id string) error {
	for range shortWait {
		list, err := w.serversOf(ctx, w.session, w.VM)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(list, func(s servers.Server) bool { return s.ID == id })
		if at < 0 {
			return w.freed(ctx, id)
		}
		if err := w.removeServer(ctx, w.session, list[at]); err != nil {
			return err
		}
		if err := w.cloud.wait(ctx, pause); err != nil {
			return err
		}
	}
	return fault.New(fault.Transient, "server %s does not go away", id).WithHint("openstack%s server delete --force %s", w.cloud.option(), id)
}

// freed waits until no volume is a server's any more: Cinder is told when Nova is through.
func (w *delivery) freed(ctx context.Context, server string) error {
	for range shortWait {
		list, err := w.volumesOf(ctx, w.session, w.VM)
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
