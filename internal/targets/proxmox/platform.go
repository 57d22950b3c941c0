package proxmox

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// clients are the clients of one node, by kind of object. They share one connection and have no other
// state.
type clients struct {
	api      *client       // sends requests
	node     string        // node for new guests
	guests   guestClient   // guests of the cluster
	storages storageClient // storages of the node
	volumes  volumeClient  // volumes filled over SSH
	uploads  uploadClient  // files for imports
	shell    nodeShell     // programs over SSH; unusable without Options.SSH
}

// Platform implements platform.Platform for a node of Proxmox VE.
type Platform struct {
	clients
	opts Options // fixed after New
}

var (
	_ platform.Platform = (*Platform)(nil)
	_ platform.Preparer = (*Platform)(nil)
	_ platform.Sender   = (*Platform)(nil)
	_ platform.Carrier  = (*Platform)(nil)
	_ platform.Starter  = (*Platform)(nil)
	_ platform.Examiner = (*Platform)(nil)
	_ platform.Outliner = (*Platform)(nil)

	_ platform.ValueLister = (*Platform)(nil)
)

// newPlace returns the platform with its clients.
func newPlace(api *client, node string, o Options) *Platform {
	c := clients{
		api: api, node: node,
		guests:   guestClient{api, node},
		storages: storageClient{api, node},
		shell:    nodeShell{node, o.dialNode},
	}
	c.volumes = volumeClient{api, node, c.storages, c.guests}
	c.uploads = uploadClient{api, node, c.storages}
	return &Platform{clients: c, opts: o}
}

// newChecker returns the checker for p's options.
func (p *Platform) newChecker() checker { return checker{p.clients, p.opts} }

// newStarter returns the starter for p's guests.
func (p *Platform) newStarter() starter { return starter{p.api, p.node, p.guests, p.opts} }

// Check verifies that vm can be delivered. It changes nothing.
func (p *Platform) Check(ctx context.Context, vm *inventory.VM) error {
	return p.newChecker().checkVM(ctx, vm)
}

// Examine performs the checks of Check by aspect, without a VM.
func (p *Platform) Examine(ctx context.Context, a platform.Aspect) []platform.AspectResult {
	return p.newChecker().examineAspect(ctx, a)
}

// ListValues implements platform.ValueLister for storage, import and bridge.
func (p *Platform) ListValues(ctx context.Context, parameter string) (names []string, err error) {
	content, ok := map[string]string{"storage": "images", "import": "import"}[parameter]
	switch {
	case ok:
		list, err := p.storages.list(ctx)
		for _, s := range list {
			if s.hasContent(content) {
				names = append(names, s.ID)
			}
		}
		return names, err
	case parameter == "bridge":
		kinds, err := p.api.listBridges(ctx, p.node)
		return slices.Sorted(maps.Keys(kinds)), err
	}
	return nil, nil
}

// Sends implements platform.Sender. Over SSH, Prepare has transferred everything but the changes.
func (p *Platform) Sends(held, changed int64) int64 {
	if p.opts.isDirect() {
		return changed
	}
	return held
}

// CarriesEFI reports whether EFI variables can be carried over, which requires SSH. They are added to
// the variables that
// Proxmox created for its firmware. The API does not give access to these.
func (p *Platform) CarriesEFI() bool { return p.opts.isDirect() }

// Prepare creates the guest without disks, and writes all chunks with a known hash to its volumes.
// After an error, the next
// call of Prepare or Deliver continues.
func (p *Platform) Prepare(ctx context.Context, d platform.Delivery) error {
	if !p.opts.isDirect() {
		return nil
	}
	w, err := newSSHDelivery(p.clients, p.opts, d)
	if err != nil {
		return err
	}
	return w.prepare(ctx)
}

// Deliver creates the guest, powered off.
func (p *Platform) Deliver(ctx context.Context, d platform.Delivery) (platform.Receipt, error) {
	if p.opts.isDirect() {
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

// Withdraw removes the guest that was created for vm, and its uploads or volumes.
func (p *Platform) Withdraw(ctx context.Context, vm *inventory.VM) error {
	return withdrawGuest(ctx, p.clients, p.opts.isDirect(), vm)
}

// withdrawGuest implements Withdraw. direct reports whether volumes are written over SSH.
func withdrawGuest(ctx context.Context, c clients, direct bool, vm *inventory.VM) error {
	g, err := c.guests.findGuest(ctx, vm)
	if err == nil && g != nil {
		err = c.guests.destroyGuest(ctx, g)
	}
	if direct || g != nil && g.isDirect() {
		err = errors.Join(err, c.volumes.removeAll(ctx, vm))
	}
	if direct {
		return err
	}
	return errors.Join(err, c.uploads.awaitCopies(ctx, vm), c.uploads.removeAll(ctx, vm))
}

// Start powers on the guest, on whichever node of the cluster it is now. An unfinished guest, or one
// with other images than
// def's, is fault.Conflict.
func (p *Platform) Start(ctx context.Context, def targets.Definition) (targets.Started, error) {
	return p.newStarter().startGuest(ctx, def)
}
