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

// Start creates the server from the delivered parts, or powers on the server that it has created
// before, and waits
// until it is active. It removes a server that Nova could not start, because its attached volumes and
// ports would
// block the next attempt.
func (p *Platform) Start(ctx context.Context, def targets.Definition) (targets.Started, error) {
	d, err := newDelivery(ctx, p.newChooser(), platform.Delivery{Definition: def})
	if err != nil {
		return targets.Started{}, err
	}
	w := &starter{delivery: d}
	there, err := d.finder.findParts(ctx, w.session, def.VM)
	if err != nil {
		return targets.Started{}, err
	}
	// A server from an earlier call of Start is reused.
	for _, step := range []func(context.Context, *found) error{w.loadDelivered, w.findServer, w.makeServer} {
		if err := step(ctx, there); err != nil {
			return targets.Started{}, err
		}
	}
	if err := w.awaitServer(ctx); err != nil {
		return targets.Started{}, err
	}
	return targets.Started{Console: "openstack" + p.cloud.cloudOption() + " console url show " + w.server}, nil
}

// starter creates or powers on the server of one VM. It is not safe for concurrent use.
type starter struct {
	*delivery
	server string // ID; empty until the server exists
}

// loadDelivered finds the delivered parts. A part that a foreign server uses is fault.Conflict: the
// user may have created
// the server with the command in the receipt.
func (w *starter) loadDelivered(ctx context.Context, there *found) error {
	id, of := there.completedRecord()
	if id == "" {
		if err := w.finder.checkNames(ctx, w.session, w.VM, w.machine.name); err != nil {
			return err
		}
		return fault.New(fault.NotFound, "VM %s has not been delivered to %s", w.VM.Name, w.cloud.name).
			WithHint("list its volumes: openstack%s volume list --property %s=%s", w.cloud.cloudOption(), sourceKey, sourceID(w.VM))
	}
	if of != w.contents {
		return w.outdatedError(id)
	}
	use := func(what, name, server string) error {
		if server == "" || slices.ContainsFunc(there.servers, func(s servers.Server) bool { return s.ID == server }) {
			return nil
		}
		return fault.New(fault.Conflict, "%s %s is in use by server %s, which decamp did not create", what, fault.Line(name), fault.Line(server)).
			WithHint("if that server is the VM, a user created it, and no action is required: openstack%s server show %s", w.cloud.cloudOption(), fault.Quote(server))
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
	return w.adoptFound(there, id)
}

// neverRan reports whether Nova could not start a server, so that no guest has written to its disks.
func neverRan(s servers.Server) bool { return s.Status == "ERROR" && s.LaunchedAt.IsZero() }

// findServer sets w.server to the existing server, and removes servers that never ran.
func (w *starter) findServer(ctx context.Context, there *found) error {
	for _, s := range there.servers {
		if neverRan(s) {
			if err := w.clearServer(ctx, s.ID); err != nil {
				return err
			}
		} else if w.server == "" {
			w.server = s.ID
		}
	}
	return nil
}

// makeServer creates the server unless it exists. After a lost answer it looks for the server before it
// tries again.
func (w *starter) makeServer(ctx context.Context, _ *found) error {
	for try := 1; w.server == ""; try++ {
		err := w.createServer(ctx)
		if err == nil {
			return nil
		}
		if !isTemporary(err) || try == createTries {
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

// resumeCommands contains the command that resumes a server, by its status.
var resumeCommands = map[string]string{
	"PAUSED": "unpause", "SUSPENDED": "resume", "SHELVED": "unshelve", "SHELVED_OFFLOADED": "unshelve", "RESCUE": "unrescue",
}

// awaitServer waits until the server is active. It powers on a server that is off, once.
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
			return w.serverError(ctx, *s)
		case s.Status == "SHUTOFF" && !ordered:
			ordered = true
			err = w.powerOn(ctx)
		case resumeCommands[s.Status] != "":
			return fault.New(fault.Conflict, "server %s is %s", s.ID, s.Status).
				WithHint("if it should run: openstack%s server %s %s", w.cloud.cloudOption(), resumeCommands[s.Status], s.ID)
		}
		if err != nil {
			return err
		}
		if err := w.cloud.wait(ctx, poll); err != nil {
			return err
		}
	}
	return fault.New(fault.Conflict, "server %s does not become active", w.server).WithHint("check its state: openstack%s server show %s", w.cloud.cloudOption(), w.server)
}

// serverError returns the error of a server in the status ERROR. It removes the server if it never ran.
// A server that ran
// stays, because with boot=image it contains the only copy of the guest's disk. The delivered parts
// stay.
func (w *starter) serverError(ctx context.Context, s servers.Server) error {
	if !neverRan(s) {
		return fault.New(fault.Conflict, "server %s has run before, and has an error: %s", s.ID, fault.Line(s.Fault.Message)).
			WithHint("restart it: openstack%s server reboot --hard %s", w.cloud.cloudOption(), s.ID)
	}
	kind := fault.Transient
	if strings.Contains(s.Fault.Message, "No valid host") {
		kind = fault.Full
	}
	why := fault.New(kind, "Nova could not start server %s, which has been removed: %s", s.ID, fault.Line(s.Fault.Message)).
		WithHint("free resources; or create it with another flavor or zone: %s", w.createCommand())
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := w.clearServer(late, s.ID); err != nil {
		return errors.Join(why, fmt.Errorf("remove it: %w", err))
	}
	return why
}
