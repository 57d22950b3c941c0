package proxmox

import (
	"context"
	"errors"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// clients are the clients of one node, by object. They share one connection and hold no other state.
type clients struct {
	api      *client
	node     string
	guests   guestClient
	storages storageClient
	volumes  volumeClient
	uploads  uploadClient
	shell    nodeShell
}

// Place is a node of Proxmox VE. It satisfies platform.Place.
type Place struct {
	clients
	opts Options
}

var (
	_ platform.Place    = (*Place)(nil)
	_ platform.Preparer = (*Place)(nil)
	_ platform.Sender   = (*Place)(nil)
	_ platform.Carrier  = (*Place)(nil)
	_ platform.Starter  = (*Place)(nil)
	_ platform.Examiner = (*Place)(nil)
	_ platform.Outliner = (*Place)(nil)
)

func newPlace(api *client, node string, o Options) *Place {
	c := clients{
		api: api, node: node,
		guests:   guestClient{api, node},
		storages: storageClient{api, node},
		shell:    nodeShell{node, o.dial},
	}
	c.volumes = volumeClient{api, node, c.storages, c.guests}
	c.uploads = uploadClient{api, node, c.storages}
	return &Place{clients: c, opts: o}
}

func (p *Place) checker() checker { return checker{p.clients, p.opts} }

func (p *Place) starter() starter { return starter{p.api, p.node, p.guests, p.opts} }

// Check reports why vm cannot be delivered. It only reads.
func (p *Place) Check(ctx context.Context, vm *inventory.VM) error {
	return p.checker().check(ctx, vm)
}

// Examine is Check by aspects, for a VM that stands in for all.
func (p *Place) Examine(ctx context.Context, a platform.Aspect) []platform.Look {
	return p.checker().examine(ctx, a)
}

// Sends is part of platform.Sender.
func (p *Place) Sends(held, changed int64) int64 {
	if p.opts.direct() {
		return changed
	}
	return held
}

// CarriesEFI reports whether a VM's boot entries are taken: only over SSH. They are added to the variables that
// Proxmox made for its own firmware, and the API lets nobody read or write those.
func (p *Place) CarriesEFI() bool { return p.opts.direct() }

// Prepare makes the guest, without disks, and brings its volumes up to what is known of the images. After an error,
// Prepare or Deliver continues with what it left.
func (p *Place) Prepare(ctx context.Context, d platform.Delivery) error {
	if !p.opts.direct() {
		return nil
	}
	w, err := newSSHDelivery(p.clients, p.opts, d)
	if err != nil {
		return err
	}
	return w.prepare(ctx)
}

// Deliver makes the guest, powered off.
func (p *Place) Deliver(ctx context.Context, d platform.Delivery) (platform.Receipt, error) {
	if p.opts.direct() {
		w, err := newSSHDelivery(p.clients, p.opts, d)
		if err != nil {
			return platform.Receipt{}, err
		}
		return w.deliver(ctx)
	}
	w, err := newImportDelivery(p.clients, p.opts, d)
	if err != nil {
		return platform.Receipt{}, err
	}
	return w.deliver(ctx)
}

// Withdraw removes the guest that was made of vm, and what was uploaded for it, or
// the volumes that were filled.
func (p *Place) Withdraw(ctx context.Context, vm *inventory.VM) error {
	return withdraw(ctx, p.clients, p.opts.direct(), vm)
}

// withdraw is Withdraw; direct reports whether volumes are written over SSH.
func withdraw(ctx context.Context, c clients, direct bool, vm *inventory.VM) error {
	g, err := c.guests.find(ctx, vm)
	if err == nil && g != nil {
		err = c.guests.destroy(ctx, g)
	}
	if direct || g != nil && g.direct() {
		err = errors.Join(err, c.volumes.removeAll(ctx, vm))
	}
	if direct {
		return err
	}
	return errors.Join(err, c.uploads.settle(ctx, vm), c.uploads.removeAll(ctx, vm))
}

// Start powers on the guest that was made of def's VM, wherever in the cluster it is by now. One whose
// disks are of other images than def's is fault.Conflict, and so is one that is unfinished.
func (p *Place) Start(ctx context.Context, def targets.Definition) (targets.Started, error) {
	return p.starter().start(ctx, def)
}
