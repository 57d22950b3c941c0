package assemble

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/sleep"
)

// A HeldSnapshot is a snapshot of a running VM that this process created and removes. It is on record from
// before its creation until its removal. Other processes of the state directory remove it only after the
// end of this process.
type HeldSnapshot struct {
	Ref  inventory.MoRef // reference of the snapshot
	vm   inventory.MoRef // VM of the snapshot
	name string          // unique name
	hold *cleanup.Hold   // record of the snapshot
	by   *vmChanger      // removes the snapshot
}

// HoldSnapshot records a snapshot of a VM and creates it. The name must be unique. If the creation fails,
// nothing is left on the host, or the record stays.
func (h *HostShells) HoldSnapshot(ctx context.Context, vm inventory.MoRef, name, description string) (*HeldSnapshot, error) {
	if _, err := h.changer.chooseMethod(ctx, vm); err != nil { // before it is on record as something that may be left
		return nil, err
	}
	s := &HeldSnapshot{vm: vm, name: name, by: h.changer}
	var err error
	if s.hold, err = h.store.Hold(snapshotRecord(h.login.server, vm, name)); err != nil {
		return nil, err
	}
	err = retryBusy(ctx, func() (err error) {
		var found bool // by an attempt whose answer was lost
		if s.Ref, found, err = h.session.FindSnapshot(ctx, vm, name); err != nil || found {
			return err
		}
		return h.changer.changeVM(ctx, vm, func(c vmSwitcher) (err error) {
			s.Ref, err = c.CreateSnapshot(ctx, vm, esx.SnapshotSpec{Name: name, Description: description})
			return err
		})
	})
	if err == nil {
		return s, nil
	}
	ctx = context.WithoutCancel(ctx)
	switch fault.KindOf(err) {
	case fault.Canceled, fault.Transient, fault.Unreachable: // the host may have begun to create it
		if _, _, unknown := h.session.AwaitSnapshot(ctx, vm, name, true, lateSnapshot); unknown != nil {
			h.assembler.Log.Debug("snapshots are unknown after a failure", "vm", vm, "err", unknown)
		}
	}
	return nil, errors.Join(err, s.Remove(ctx))
}

// lateSnapshot is the time in which a host that works on a snapshot reports its task.
const lateSnapshot = 5 * time.Second

// Remove removes the snapshot, whose delta the host merges, and its record. If that fails, the record
// stays, and the error names the next command.
func (s *HeldSnapshot) Remove(ctx context.Context) error {
	err := retryBusy(ctx, func() error { return s.by.removeSnapshot(ctx, s.vm, s.name) })
	if err == nil {
		return s.hold.Remove()
	}
	return errors.Join(cleanup.LeftoverError(snapshotRecord(s.by.api.Addr(), s.vm, s.name), err), s.hold.Release())
}

// snapshotRecord returns the record of a snapshot. Its ID depends only on server, VM and name.
func snapshotRecord(server string, vm inventory.MoRef, name string) cleanup.Record {
	return cleanup.Record{
		Kind: cleanup.Snapshot, Server: server, Details: map[string]string{"vm": string(vm), "name": name},
		Text:          fmt.Sprintf("snapshot %q of VM %s", name, vm),
		ManualCommand: fmt.Sprintf("vim-cmd vmsvc/snapshot.get %s", vm), // its number, for vmsvc/snapshot.remove
		Since:         time.Now(),
	}
}

const (
	busyAttempts   = 24               // attempts at a VM that is busy: about ten minutes
	lostAttempts   = 6                // attempts at a host that does not answer: about a minute
	firstBusyPause = time.Second      // pause after the first attempt; it doubles
	maxBusyPause   = 30 * time.Second // longest pause between attempts
)

// retryBusy calls do until it returns an error that cannot pass. While a VM is moved to another host or
// backed up, it accepts no snapshots.
func retryBusy(ctx context.Context, do func() error) error {
	pause := firstBusyPause
	for attempt := 1; ; attempt++ {
		err := do()
		passes := fault.Is(err, fault.Transient) && attempt < busyAttempts || fault.Is(err, fault.Unreachable) && attempt < lostAttempts
		if !passes || sleep.For(ctx, pause) != nil {
			return err
		}
		pause = min(2*pause, maxBusyPause)
	}
}
