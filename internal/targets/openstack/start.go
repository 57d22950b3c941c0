package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// Start makes the server of what was delivered, once, or powers on the one that it made before, and returns
// when it is active. A server that Nova could not bring up is removed again: it has the volumes and ports, and
// would be in the way of the next.
func (p *Place) Start(ctx context.Context, def targets.Definition) (targets.Started, error) {
	d, err := newDelivery(ctx, p.chooser(), platform.Delivery{Definition: def})
	if err != nil {
		return targets.Started{}, err
	}
	w := &starter{delivery: d}
	there, err := d.finder.find(ctx, w.session, def.VM)
	if err != nil {
		return targets.Started{}, err
	}
	for _, step := range []func(context.Context, *found) error{w.recall, w.findServer, w.makeServer} {
		if err := step(ctx, there); err != nil {
			return targets.Started{}, err
		}
	}
	if err := w.awaitServer(ctx); err != nil {
		return targets.Started{}, err
	}
	return targets.Started{Console: "openstack" + p.cloud.option() + " console url show " + w.server}, nil
}

// A starter makes or powers on the server of one VM. It is not safe for concurrent use.
type starter struct {
	*delivery
	server string // ID; empty until there is one
}

// recall takes what was delivered for what the server is made of. What a server of somebody else's has may
// run already: the command that makes one is printed.
func (w *starter) recall(ctx context.Context, there *found) error {
	id, of := there.record()
	if id == "" {
		if err := w.finder.checkNames(ctx, w.session, w.VM, w.machine.name); err != nil {
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
func (w *starter) findServer(ctx context.Context, there *found) error {
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
func (w *starter) makeServer(ctx context.Context, _ *found) error {
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

// wake is what makes servers active again that somebody put to rest, by status.
var wake = map[string]string{
	"PAUSED": "unpause", "SUSPENDED": "resume", "SHELVED": "unshelve", "SHELVED_OFFLOADED": "unshelve", "RESCUE": "unrescue",
}

// awaitServer waits until the server runs. One that is off is powered on.
func (w *starter) awaitServer(ctx context.Context) error {
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

// failed is what becomes of a server in ERROR. One that ran before stays: with boot=image the guest's disk is its.
// What it is made of stays. The address cannot name another flavor now: it would be that of another run.
func (w *starter) failed(ctx context.Context, s servers.Server) error {
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
