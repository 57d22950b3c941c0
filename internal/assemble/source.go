package assemble

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/esx/vimcmd"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate/warm"
)

// plannedSession is a session as migrate.Source and warm.Live: VMs are named by their references. A
// snapshot is recorded before it is created, until it is removed.
type plannedSession struct {
	*esx.Session
	changer *vmChanger     // changes VMs by API or SSH
	off     *sync.Mutex    // held by the run that powers the VM off; the others find it off
	store   *cleanup.Store // records of changes on hosts
	server  string         // name of the server in records
}

var _ warm.Live = plannedSession{}

// VM returns the full description of a VM by its reference. It implements migrate.Source.
func (p plannedSession) VM(ctx context.Context, ref string) (*inventory.VM, error) {
	return p.VMByRef(ctx, inventory.MoRef(ref))
}

// BareVM returns the description of a VM without the notes, tags and attributes of a vCenter, in one
// request. It implements migrate.Source.
func (p plannedSession) BareVM(ctx context.Context, ref string) (*inventory.VM, error) {
	return p.Session.BareVM(ctx, inventory.MoRef(ref))
}

// PowerOff shuts the guest down and waits; with force it then powers the VM off. Runs of the same VM
// call it one after the other, and the later ones find it off.
func (p plannedSession) PowerOff(ctx context.Context, vm inventory.MoRef, wait time.Duration, force bool) error {
	p.off.Lock()
	defer p.off.Unlock()
	return p.changer.changeVM(ctx, vm, func(c vmSwitcher) error {
		return c.PowerOff(ctx, vm, esx.PowerOffOptions{Wait: wait, Force: force})
	})
}

// PowerOn powers the VM on. It implements warm.Live.
func (p plannedSession) PowerOn(ctx context.Context, vm inventory.MoRef) error {
	return p.changer.changeVM(ctx, vm, func(c vmSwitcher) error { return c.PowerOn(ctx, vm) })
}

// MayChange returns warm.ErrReadOnly if VMs can be changed neither by API nor by SSH. An unreadable
// licence is not an error: the host's refusal decides later. It implements warm.Live.
func (p plannedSession) MayChange(ctx context.Context, vm inventory.MoRef) error {
	_, err := p.changer.chooseMethod(ctx, vm)
	return err
}

// Track turns change tracking on or off. If the licence or the role forbids that, it returns
// fault.Unsupported. SSH is not used for it: that would change the configuration of the VM without the
// knowledge of the host. It implements warm.Live.
func (p plannedSession) Track(ctx context.Context, vm inventory.MoRef, on bool) error {
	err := p.TrackChanges(ctx, vm, on)
	if esx.Restricted(err) {
		if err := p.changer.handleRefusal(ctx, vm, err); err != nil {
			return err
		}
		return fault.New(fault.Unsupported, "the free licence of the host does not permit change tracking").WithHint("install an evaluation or paid licence on the host during the migration")
	}
	if esx.Forbidden(err) {
		return fault.New(fault.Unsupported, "%w", err).WithHint("grant the user the privilege VirtualMachine.Config.ChangeTracking")
	}
	return err
}

// TakeRoundSnapshot creates a snapshot of that name, or returns the existing one after an interruption. The result
// has its change IDs and sizes by device key. It implements warm.Live.
func (p plannedSession) TakeRoundSnapshot(ctx context.Context, vm inventory.MoRef, name string) (frozen warm.RoundSnapshot, err error) {
	if err := p.MayChange(ctx, vm); err != nil { // before it is on record as something that may be left
		return frozen, err
	}
	if _, err := p.store.Add(snapshotRecord(p.server, vm, name)); err != nil {
		return frozen, err
	}
	ref, found, err := p.FindSnapshot(ctx, vm, name)
	if err == nil && !found {
		err = p.changer.changeVM(ctx, vm, func(c vmSwitcher) (err error) {
			ref, err = c.CreateSnapshot(ctx, vm, esx.SnapshotSpec{Name: name, Description: "taken by decamp, which copies this VM, and removed by it"})
			return err
		})
	}
	if err != nil {
		return frozen, err
	}
	disks, err := p.DisksAtSnapshot(ctx, ref)
	frozen = warm.RoundSnapshot{Snapshot: ref, IDs: map[int32]inventory.ChangeID{}, Sizes: map[int32]int64{}}
	for _, d := range disks {
		frozen.Sizes[d.Key] = d.Capacity
		if d.ChangeID != "" {
			frozen.IDs[d.Key] = d.ChangeID
		}
	}
	return frozen, err
}

// FindRoundSnapshot returns the snapshot of that name; otherwise an empty text. It implements warm.Live.
func (p plannedSession) FindRoundSnapshot(ctx context.Context, vm inventory.MoRef, name string) (inventory.MoRef, error) {
	ref, _, err := p.FindSnapshot(ctx, vm, name)
	return ref, err
}

// SnapshotNames returns the names of all snapshots of a VM. It implements warm.Live.
func (p plannedSession) SnapshotNames(ctx context.Context, vm inventory.MoRef) (names []string, err error) {
	all, err := p.Snapshots(ctx, vm)
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names, err
}

// RemoveRoundSnapshot removes the snapshot of that name and its record. It implements warm.Live.
func (p plannedSession) RemoveRoundSnapshot(ctx context.Context, vm inventory.MoRef, name string) error {
	id := snapshotRecord(p.server, vm, name).ID()
	if err := p.changer.removeSnapshot(ctx, vm, name); err != nil {
		p.store.Release(id)
		return err
	}
	return p.store.Remove(id)
}

// Changed calls tell for each range that was written between a change ID and a snapshot. It implements
// warm.Live.
func (p plannedSession) Changed(ctx context.Context, vm, snapshot inventory.MoRef, d *inventory.Disk, since inventory.ChangeID, tell func(disk.Range)) error {
	return p.Session.Changed(ctx, vm, snapshot, d.Key, since, d.Capacity, tell)
}

// vmSwitcher creates snapshots of VMs and changes their power state, by API or by SSH.
type vmSwitcher interface {
	// CreateSnapshot creates a snapshot and returns its reference.
	CreateSnapshot(ctx context.Context, vm inventory.MoRef, o esx.SnapshotSpec) (inventory.MoRef, error)
	// DropSnapshot removes the snapshot of that name, if it exists.
	DropSnapshot(ctx context.Context, vm inventory.MoRef, name string) error
	// PowerOff shuts the guest down; with Force it powers the VM off after Wait.
	PowerOff(ctx context.Context, vm inventory.MoRef, o esx.PowerOffOptions) error
	PowerOn(ctx context.Context, vm inventory.MoRef) error // PowerOn powers the VM on.
}

var (
	_ vmSwitcher = (*esx.Session)(nil)
	_ vmSwitcher = (*vimcmd.Host)(nil)
)

// vmChanger changes VMs by the API, or by vim-cmd over SSH if the licence of the host makes the API
// read-only. It is safe for concurrent use.
type vmChanger struct {
	api   *esx.Session    // session with the API
	ssh   *vimcmd.Host    // vim-cmd over SSH
	onSSH func(why error) // called once with the reason for SSH

	refused     atomic.Bool // the API refused a change because of the licence; read without mu
	mu          sync.Mutex  // held while the method is chosen
	licenceRead bool        // the licence was requested
	free        bool        // the licence is the free one
	bySSH       bool        // VMs are changed over SSH from now on
}

// changeVM calls do with the API or with SSH. If the API refuses because of the licence, it calls do
// again with SSH. If neither is permitted, the error is warm.ErrReadOnly.
func (h *vmChanger) changeVM(ctx context.Context, vm inventory.MoRef, do func(vmSwitcher) error) error {
	bySSH, err := h.chooseMethod(ctx, vm)
	if err != nil {
		return err
	}
	if bySSH {
		return do(h.ssh)
	}
	// the licence may be unreadable: then only the refusal of a change shows that it is the free one
	refused := do(h.api)
	if !esx.Restricted(refused) {
		return refused
	}
	if err := h.handleRefusal(ctx, vm, refused); err != nil {
		return err
	}
	return do(h.ssh)
}

// removeSnapshot removes a snapshot of decamp; the host merges its delta.
func (h *vmChanger) removeSnapshot(ctx context.Context, vm inventory.MoRef, name string) error {
	return h.changeVM(ctx, vm, func(c vmSwitcher) error { return c.DropSnapshot(ctx, vm, name) })
}

// chooseMethod determines from the licence whether VMs are changed by API or by SSH. With an unreadable
// or unknown licence it selects the API, whose refusal decides later.
func (h *vmChanger) chooseMethod(ctx context.Context, vm inventory.MoRef) (bySSH bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.licenceRead {
		h.free = h.api.FreeLicence(ctx)
		// an interrupted request is repeated by the next call
		h.licenceRead = ctx.Err() == nil
	}
	if !h.free || h.bySSH {
		return h.bySSH, ctx.Err()
	}
	return h.switchToSSH(ctx, vm, warm.ErrReadOnly)
}

// handleRefusal switches to SSH after the API refused a change. A nil result means that the change can
// be repeated over SSH.
func (h *vmChanger) handleRefusal(ctx context.Context, vm inventory.MoRef, why error) error {
	h.refused.Store(true)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bySSH {
		return nil
	}
	_, err := h.switchToSSH(ctx, vm, why)
	return err
}

// switchToSSH selects SSH for all further changes, if the host accepts it. mu must be held.
func (h *vmChanger) switchToSSH(ctx context.Context, vm inventory.MoRef, why error) (bool, error) {
	if err := h.ssh.Ready(ctx, vm); err != nil {
		return false, warm.ReadOnly(err)
	}
	h.bySSH = true
	h.onSSH(why)
	return true, nil
}

// reportSSHChanger logs and prints that VMs are changed over SSH, with the reason.
func (p *Prompts) reportSSHChanger(why error) {
	p.Log.Info("snapshots and power changes use SSH", "err", why)
	p.Notify("Snapshots and power changes use SSH (vim-cmd): %s.", why.Error())
}
