package assemble

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/esx/vimcmd"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate/warm"
)

// planned is a session as migrate sees it: the plan names its VM by reference. Snapshots
// are on record before they are taken, until they are removed.
type plannedSession struct {
	*esx.Session
	hands  *vmChanger
	off    *sync.Mutex // held by the run that powers the VM off; the others find it off
	store  *cleanup.Store
	server string // name of the server in records
}

var _ warm.Live = plannedSession{}

func (p plannedSession) VM(ctx context.Context, ref string) (*inventory.VM, error) {
	return p.VMByRef(ctx, inventory.MoRef(ref))
}

// BareVM is part of migrate.Source.
func (p plannedSession) BareVM(ctx context.Context, ref string) (*inventory.VM, error) {
	return p.Session.BareVM(ctx, inventory.MoRef(ref))
}

func (p plannedSession) PowerOff(ctx context.Context, vm inventory.MoRef, wait time.Duration, force bool) error {
	p.off.Lock()
	defer p.off.Unlock()
	return p.hands.changeVM(ctx, vm, func(c vmSwitcher) error {
		return c.PowerOff(ctx, vm, esx.PowerOffOptions{Wait: wait, Force: force})
	})
}

// PowerOn is part of warm.Live.
func (p plannedSession) PowerOn(ctx context.Context, vm inventory.MoRef) error {
	return p.hands.changeVM(ctx, vm, func(c vmSwitcher) error { return c.PowerOn(ctx, vm) })
}

// MayChange is part of warm.Live. A licence that cannot be read is found out by what the
// host refuses.
func (p plannedSession) MayChange(ctx context.Context, vm inventory.MoRef) error {
	_, err := p.hands.chooseMethod(ctx, vm)
	return err
}

// Track is part of warm.Live. What a role forbids cannot be had, and what a licence does
// is not done by SSH either: it would be a change of the VM's configuration behind the host.
func (p plannedSession) Track(ctx context.Context, vm inventory.MoRef, on bool) error {
	err := p.TrackChanges(ctx, vm, on)
	if esx.Restricted(err) {
		if err := p.hands.handleRefusal(ctx, vm, err); err != nil {
			return err
		}
		return fault.New(fault.Unsupported, "the host's licence (free ESXi) does not let it be turned on").WithHint("give the host an evaluation or paid licence for as long as it takes")
	}
	if esx.Forbidden(err) {
		return fault.New(fault.Unsupported, "%w", err).WithHint("allow the user VirtualMachine.Config.ChangeTracking")
	}
	return err
}

// Freeze is part of warm.Live.
func (p plannedSession) Freeze(ctx context.Context, vm inventory.MoRef, name string) (frozen warm.Frozen, err error) {
	if err := p.MayChange(ctx, vm); err != nil { // before it is on record as something that may be left
		return frozen, err
	}
	if _, err := p.store.Add(p.snapshotRecord(vm, name)); err != nil {
		return frozen, err
	}
	ref, found, err := p.FindSnapshot(ctx, vm, name)
	if err == nil && !found {
		err = p.hands.changeVM(ctx, vm, func(c vmSwitcher) (err error) {
			ref, err = c.CreateSnapshot(ctx, vm, esx.SnapshotSpec{Name: name, Description: "taken by decamp, which copies this VM, and removed by it"})
			return err
		})
	}
	if err != nil {
		return frozen, err
	}
	disks, err := p.FrozenDisks(ctx, ref)
	frozen = warm.Frozen{Snapshot: ref, IDs: map[int32]inventory.ChangeID{}, Sizes: map[int32]int64{}}
	for _, d := range disks {
		frozen.Sizes[d.Key] = d.Capacity
		if d.ChangeID != "" {
			frozen.IDs[d.Key] = d.ChangeID
		}
	}
	return frozen, err
}

// Frozen is part of warm.Live.
func (p plannedSession) Frozen(ctx context.Context, vm inventory.MoRef, name string) (inventory.MoRef, error) {
	ref, _, err := p.FindSnapshot(ctx, vm, name)
	return ref, err
}

// Thaw is part of warm.Live.
func (p plannedSession) Thaw(ctx context.Context, vm inventory.MoRef, name string) error {
	id := p.snapshotRecord(vm, name).ID()
	if err := p.hands.removeSnapshot(ctx, vm, name); err != nil {
		p.store.Release(id)
		return err
	}
	return p.store.Remove(id)
}

func (p plannedSession) snapshotRecord(vm inventory.MoRef, name string) cleanup.Record {
	return cleanup.Record{
		Kind: cleanup.Snapshot, Server: p.server, What: map[string]string{"vm": string(vm), "name": name},
		Text:   fmt.Sprintf("snapshot %q of VM %s", name, vm),
		ByHand: fmt.Sprintf("vim-cmd vmsvc/snapshot.get %s", vm), // its number, for vmsvc/snapshot.remove
		Since:  time.Now(),
	}
}

// Changed is part of warm.Live.
func (p plannedSession) Changed(ctx context.Context, vm, snapshot inventory.MoRef, d *inventory.Disk, since inventory.ChangeID, tell func(disk.Range)) error {
	return p.Session.Changed(ctx, vm, snapshot, d.Key, since, d.Capacity, tell)
}

// changer is who freezes and switches VMs.
type vmSwitcher interface {
	CreateSnapshot(ctx context.Context, vm inventory.MoRef, o esx.SnapshotSpec) (inventory.MoRef, error)
	DropSnapshot(ctx context.Context, vm inventory.MoRef, name string) error
	PowerOff(ctx context.Context, vm inventory.MoRef, o esx.PowerOffOptions) error
	PowerOn(ctx context.Context, vm inventory.MoRef) error
}

var (
	_ vmSwitcher = (*esx.Session)(nil)
	_ vmSwitcher = (*vimcmd.Host)(nil)
)

// hands change VMs: the API, or vim-cmd by SSH where the host's licence lets the API read only.
type vmChanger struct {
	api   *esx.Session
	ssh   *vimcmd.Host
	onSSH func(why error) // called once with the reason for SSH

	mu          sync.Mutex // held while it is found out by whom
	licenceRead bool       // the licence was requested
	free        bool       // the licence is the free one
	bySSH       bool
}

// changeVM changes a VM by API or SSH. If neither is permitted, the error is warm.ErrReadOnly.
func (h *vmChanger) changeVM(ctx context.Context, vm inventory.MoRef, do func(vmSwitcher) error) error {
	bySSH, err := h.chooseMethod(ctx, vm)
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
	if err := h.handleRefusal(ctx, vm, refused); err != nil {
		return err
	}
	return do(h.ssh)
}

// removeSnapshot removes a snapshot of decamp and its delta.
func (h *vmChanger) removeSnapshot(ctx context.Context, vm inventory.MoRef, name string) error {
	return h.changeVM(ctx, vm, func(c vmSwitcher) error { return c.DropSnapshot(ctx, vm, name) })
}

// chooseMethod determines from the licence whether the API or SSH changes VMs. With an unreadable or unknown
// licence the host's refusal decides.
func (h *vmChanger) chooseMethod(ctx context.Context, vm inventory.MoRef) (bySSH bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.licenceRead {
		h.free = h.api.FreeLicence(ctx)
		h.licenceRead = ctx.Err() == nil
	}
	if !h.free || h.bySSH {
		return h.bySSH, ctx.Err()
	}
	return h.switchToSSH(ctx, vm, warm.ErrReadOnly)
}

// handleRefusal handles a refusal of the API to change a VM. If it returns nil, SSH is used from now on.
func (h *vmChanger) handleRefusal(ctx context.Context, vm inventory.MoRef, why error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bySSH {
		return nil
	}
	_, err := h.switchToSSH(ctx, vm, why)
	return err
}

// switchToSSH has VMs changed by SSH from now on, if that can be done.
func (h *vmChanger) switchToSSH(ctx context.Context, vm inventory.MoRef, why error) (bool, error) {
	if err := h.ssh.Ready(ctx, vm); err != nil {
		return false, warm.ReadOnly(err)
	}
	h.bySSH = true
	h.onSSH(why)
	return true, nil
}

// reportSSHChanger prints that VMs are changed over SSH, with the reason.
func (p *Prompts) reportSSHChanger(why error) {
	p.Log.Info("VMs are frozen and switched by SSH", "err", why)
	p.Tell("Snapshots are taken and VMs switched by SSH (vim-cmd): %s.", why.Error())
}
