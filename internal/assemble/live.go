package assemble

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/leftover"
	"github.com/decamp/decamp/internal/migrate"
)

// planned is a session as migrate sees it: the plan names its VM by reference. Snapshots
// are on record before they are taken, until they are removed.
type planned struct {
	*esx.Session
	hands  *hands
	off    *sync.Mutex // held by the run that powers the VM off; the others find it off
	store  *leftover.Store
	server string // as records name it
}

var _ migrate.Live = planned{}

func (p planned) VM(ctx context.Context, ref string) (*inventory.VM, error) {
	return p.VMByRef(ctx, inventory.MoRef(ref))
}

// BareVM is part of migrate.Source.
func (p planned) BareVM(ctx context.Context, ref string) (*inventory.VM, error) {
	return p.Session.BareVM(ctx, inventory.MoRef(ref))
}

func (p planned) PowerOff(ctx context.Context, vm inventory.MoRef, wait time.Duration, force bool) error {
	p.off.Lock()
	defer p.off.Unlock()
	return p.hands.use(ctx, vm, func(c changer) error {
		return c.PowerOff(ctx, vm, esx.PowerOffOptions{Wait: wait, Force: force})
	})
}

// PowerOn is part of migrate.Live.
func (p planned) PowerOn(ctx context.Context, vm inventory.MoRef) error {
	return p.hands.use(ctx, vm, func(c changer) error { return c.PowerOn(ctx, vm) })
}

// MayChange is part of migrate.Live. A licence that cannot be read is found out by what the
// host refuses.
func (p planned) MayChange(ctx context.Context, vm inventory.MoRef) error {
	_, err := p.hands.choose(ctx, vm)
	return err
}

// Track is part of migrate.Live. What a role forbids cannot be had, and what a licence does
// is not done by SSH either: it would be a change of the VM's configuration behind the host.
func (p planned) Track(ctx context.Context, vm inventory.MoRef, on bool) error {
	err := p.TrackChanges(ctx, vm, on)
	if esx.Restricted(err) {
		if err := p.hands.refused(ctx, vm, err); err != nil {
			return err
		}
		return fault.New(fault.Unsupported, "the host's licence (free ESXi) does not let it be turned on").WithHint("give the host an evaluation or paid licence for as long as it takes")
	}
	if esx.Forbidden(err) {
		return fault.New(fault.Unsupported, "%w", err).WithHint("allow the user VirtualMachine.Config.ChangeTracking")
	}
	return err
}

// Freeze is part of migrate.Live.
func (p planned) Freeze(ctx context.Context, vm inventory.MoRef, name string) (frozen migrate.Frozen, err error) {
	if err := p.MayChange(ctx, vm); err != nil { // before it is on record as something that may be left
		return frozen, err
	}
	if _, err := p.store.Add(p.record(vm, name)); err != nil {
		return frozen, err
	}
	ref, found, err := p.FindSnapshot(ctx, vm, name)
	if err == nil && !found {
		err = p.hands.use(ctx, vm, func(c changer) (err error) {
			ref, err = c.CreateSnapshot(ctx, vm, esx.SnapshotSpec{Name: name, Description: "taken by decamp, which copies this VM, and removed by it"})
			return err
		})
	}
	if err != nil {
		return frozen, err
	}
	disks, err := p.FrozenDisks(ctx, ref)
	frozen = migrate.Frozen{Snapshot: ref, IDs: map[int32]inventory.ChangeID{}, Sizes: map[int32]int64{}}
	for _, d := range disks {
		frozen.Sizes[d.Key] = d.Capacity
		if d.ChangeID != "" {
			frozen.IDs[d.Key] = d.ChangeID
		}
	}
	return frozen, err
}

// Frozen is part of migrate.Live.
func (p planned) Frozen(ctx context.Context, vm inventory.MoRef, name string) (inventory.MoRef, error) {
	ref, _, err := p.FindSnapshot(ctx, vm, name)
	return ref, err
}

// Thaw is part of migrate.Live.
func (p planned) Thaw(ctx context.Context, vm inventory.MoRef, name string) error {
	id := p.record(vm, name).ID()
	if err := p.hands.dropSnapshot(ctx, vm, name); err != nil {
		p.store.Release(id)
		return err
	}
	return p.store.Remove(id)
}

func (p planned) record(vm inventory.MoRef, name string) leftover.Record {
	return leftover.Record{
		Kind: leftover.Snapshot, Server: p.server, What: map[string]string{"vm": string(vm), "name": name},
		Text:   fmt.Sprintf("snapshot %q of VM %s", name, vm),
		ByHand: fmt.Sprintf("vim-cmd vmsvc/snapshot.get %s", vm), // its number, for vmsvc/snapshot.remove
		Since:  time.Now(),
	}
}

// Changed is part of migrate.Live.
func (p planned) Changed(ctx context.Context, vm, snapshot inventory.MoRef, d *inventory.Disk, since inventory.ChangeID, tell func(disk.Range)) error {
	return p.Session.Changed(ctx, vm, snapshot, d.Key, since, d.Capacity, tell)
}
