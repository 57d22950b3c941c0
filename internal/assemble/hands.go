package assemble

import (
	"context"
	"sync"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/esx/vimcmd"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
)

// changer is who freezes and switches VMs.
type changer interface {
	CreateSnapshot(ctx context.Context, vm inventory.MoRef, o esx.SnapshotSpec) (inventory.MoRef, error)
	DropSnapshot(ctx context.Context, vm inventory.MoRef, name string) error
	PowerOff(ctx context.Context, vm inventory.MoRef, o esx.PowerOffOptions) error
	PowerOn(ctx context.Context, vm inventory.MoRef) error
}

var (
	_ changer = (*esx.Session)(nil)
	_ changer = (*vimcmd.Host)(nil)
)

// hands change VMs: the API, or vim-cmd by SSH where the host's licence lets the API read only.
type hands struct {
	api  *esx.Session
	ssh  *vimcmd.Host
	tell func(why error) // told once, that it is by SSH

	mu    sync.Mutex // held while it is found out by whom
	asked bool       // for the licence
	free  bool       // which is the free one
	bySSH bool
}

// use has a VM changed by whoever may. Where nobody may, the error is migrate.ErrReadOnly.
func (h *hands) use(ctx context.Context, vm inventory.MoRef, do func(changer) error) error {
	bySSH, err := h.choose(ctx, vm)
	if err != nil {
		return err
	}
	if bySSH {
		return do(h.ssh)
	}
	refused := do(h.api)
	if !esx.Restricted(refused) {
		return refused
	}
	if err := h.refused(ctx, vm, refused); err != nil {
		return err
	}
	return do(h.ssh)
}

// dropSnapshot removes a snapshot of ours, and what it left.
func (h *hands) dropSnapshot(ctx context.Context, vm inventory.MoRef, name string) error {
	return h.use(ctx, vm, func(c changer) error { return c.DropSnapshot(ctx, vm, name) })
}

// choose finds out by the licence who may change a VM. One that cannot be read, or has a name
// that nobody knows, shows by what the host refuses.
func (h *hands) choose(ctx context.Context, vm inventory.MoRef) (bySSH bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.asked {
		h.free = h.api.FreeLicence(ctx)
		h.asked = ctx.Err() == nil
	}
	if !h.free || h.bySSH {
		return h.bySSH, ctx.Err()
	}
	return h.takeSSH(ctx, vm, migrate.ErrReadOnly)
}

// refused is told that the API may not change a VM. Nil: it is done by SSH from now on.
func (h *hands) refused(ctx context.Context, vm inventory.MoRef, why error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bySSH {
		return nil
	}
	_, err := h.takeSSH(ctx, vm, why)
	return err
}

// takeSSH has VMs changed by SSH from now on, if that can be done.
func (h *hands) takeSSH(ctx context.Context, vm inventory.MoRef, why error) (bool, error) {
	if err := h.ssh.Ready(ctx, vm); err != nil {
		return false, migrate.ReadOnly(err)
	}
	h.bySSH = true
	h.tell(why)
	return true, nil
}

// tellHands says that VMs are changed by SSH, and why.
func (a *Assembler) tellHands(why error) {
	a.Log.Info("VMs are frozen and switched by SSH", "err", why)
	a.Tell("Snapshots are taken and VMs switched by SSH (vim-cmd): %s.", why.Error())
}
