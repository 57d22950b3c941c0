package migrate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/transport"
)

// A SourceVM is the VM of a run at its source. It reads the VM, compares it with the plan, and powers
// it off.
type SourceVM struct {
	record *Record      // plan and facts of the run
	retry  *Retrier     // repeats calls that fail for a reason that passes
	seen   *seenVM      // shared by the steps that this process drives
	rig    *Environment // connection to the source
	permit Permit       // permission to power the VM off
	opts   *Options     // options of the Migrator
}

// Planned reads the VM and checks that its reference still identifies it: after a host was reinstalled,
// reference 12 can be another VM. Tags and attributes are those of the run's first description, because
// reading them would delay rounds and the outage.
func (s *SourceVM) Planned(ctx context.Context) (*inventory.VM, error) {
	known, read := cmp.Or(s.record.Facts.VM, s.seen.lastVM()), s.rig.Source.BareVM
	if known == nil {
		read = s.rig.Source.VM
	}
	vm, err := s.readVM(ctx, read)
	if err != nil {
		return nil, err
	}
	if known != nil {
		vm.CopyTags(known)
	}
	return vm, s.checkIdentity(vm)
}

// firstVM is Planned, unless the caller has just read the VM (Environment.Seen).
func (s *SourceVM) firstVM(ctx context.Context) (*inventory.VM, error) {
	if s.rig.Seen == nil {
		return s.Planned(ctx)
	}
	return s.rig.Seen, s.checkIdentity(s.rig.Seen)
}

// checkIdentity returns fault.Conflict if vm is not the planned VM, and records vm as the last
// description otherwise.
func (s *SourceVM) checkIdentity(vm *inventory.VM) error {
	if vm.UUID != s.record.Plan.VM.UUID || vm.InstanceUUID != s.record.Plan.VM.InstanceUUID {
		return fault.New(fault.Conflict, "VM %s is now %q with UUID %s, but the run is for %q with UUID %s",
			vm.Ref, vm.Name, vm.UUID, s.record.Plan.VM.Name, s.record.Plan.VM.UUID).
			WithHint("find the VM with decamp ls, and discard this run with %s", s.record.Plan.ID.RollbackCommand())
	}
	s.seen.setVM(vm, s.opts.Now())
	return nil
}

// readVM reads the VM with read, and retries if that fails for a reason that passes.
func (s *SourceVM) readVM(ctx context.Context, read func(context.Context, string) (*inventory.VM, error)) (vm *inventory.VM, err error) {
	err = s.retry.Do(ctx, 0, func() (bool, error) {
		vm, err = read(ctx, string(s.record.Plan.VM.Ref))
		return false, err
	})
	if err != nil {
		return nil, fmt.Errorf("read VM %s: %w", s.record.Plan.VM.Name, err)
	}
	return vm, nil
}

// PowerOff powers the VM off if it is on, and returns its new description. Changes of the disks are
// fault.Conflict.
func (s *SourceVM) PowerOff(ctx context.Context, vm *inventory.VM) (*inventory.VM, error) {
	if vm.Power == inventory.PoweredOff {
		return vm, nil
	}
	s.record.Report(journal.Event{Kind: journal.PowerChanged, Message: "powering off"})
	err := s.retry.DoBusy(ctx, func() error {
		return s.rig.Source.PowerOff(ctx, vm.Ref, s.permit.Wait, s.permit.Force)
	})
	if err != nil {
		return nil, fmt.Errorf("power off VM %s: %w", vm.Name, err)
	}
	s.record.Report(journal.Event{Kind: journal.PowerChanged, Message: "powered off"})
	off, err := s.Planned(ctx)
	if err != nil {
		return nil, err
	}
	if s.record.Facts.Warm != nil {
		vm = GrownTo(vm, off) // disks of a warm run may grow
	}
	if err := s.record.SameShape(vm, off); err != nil { // the guest's last writes may have changed the change IDs
		return nil, err
	}
	for _, w := range MarkDisconnected(vm, off) {
		s.record.Warn(w)
	}
	return off, s.Refuse(off, Permit{})
}

// Probe checks that the transport can copy every disk, at a snapshot if there is one.
func (s *SourceVM) Probe(ctx context.Context, vm *inventory.VM, snapshot inventory.MoRef) error {
	for i := range vm.Disks {
		var offer transport.Offer
		err := s.retry.Do(ctx, vm.Disks[i].Key, func() (_ bool, err error) {
			offer, err = s.rig.Transport.Probe(ctx, transport.Disk{VM: vm, Disk: &vm.Disks[i], Snapshot: snapshot})
			return false, err
		})
		if err != nil {
			return fmt.Errorf("probe disk %d: %w", vm.Disks[i].Key, err)
		}
		if !offer.Usable {
			return fault.New(fault.Unsupported, "transport %s cannot copy disk %d: %s", s.rig.Transport.Name(), vm.Disks[i].Key, offer.Reason).
				WithHint("use another transport, or change the disk")
		}
	}
	return nil
}

// Refuse returns all obstacles to migrating vm as one error: warnings of the inventory, and conditions
// that would silently produce a wrong copy. It is a Conflict if the operator can remove all of them on
// this VM, else Unsupported. Obstacles that do not apply to the transport do not count.
func (s *SourceVM) Refuse(vm *inventory.VM, p Permit) error {
	blocking := Obstacles(vm, s.rig.Transport, p)
	if len(blocking) == 0 {
		return nil
	}
	kind := fault.Conflict
	var texts, remedies []string
	for _, w := range blocking {
		if !IsTemporary(w) {
			kind = fault.Unsupported
		}
		texts, remedies = append(texts, w.Text), append(remedies, w.Remedy)
	}
	return fault.New(kind, "VM %s cannot be migrated now: %s", vm.Name, strings.Join(texts, "; ")).
		WithHint("%s", strings.Join(remedies, "; "))
}

// checkUnchanged checks that the VM is still off and the same as at the start of the run: days may pass
// between two attempts, and hours between copy and commit.
func (s *SourceVM) checkUnchanged(ctx context.Context) error {
	vm, err := s.Planned(ctx)
	if err != nil {
		return err
	}
	return s.UnchangedSince(s.record.Facts.VM, vm)
}

// checkUnchangedRecent is checkUnchanged, but uses a description that is at most recentAge old.
func (s *SourceVM) checkUnchangedRecent(ctx context.Context) error {
	if vm := s.seen.recentVM(s.opts.Now()); vm != nil {
		return s.UnchangedSince(s.record.Facts.VM, vm)
	}
	return s.checkUnchanged(ctx)
}

// UnchangedSince checks that vm is off and has the disks of was.
func (s *SourceVM) UnchangedSince(was, vm *inventory.VM) error {
	if err := s.record.sameDisks(was, vm); err != nil {
		return err
	}
	if err := s.Refuse(vm, Permit{}); err != nil {
		e := fault.New(fault.KindOf(err), "the VM changed since this run began: %w", err)
		return e.WithHint("%s; the copy may be outdated: discard this run with %s, and start again", fault.HintOf(err), s.record.Plan.ID.RollbackCommand())
	}
	return nil
}

// checkOff returns fault.Conflict if the VM is not off, because two instances would run: a user may
// have started the VM at its source during a delivery of hours.
func (s *SourceVM) checkOff(ctx context.Context) error {
	vm, err := s.Planned(ctx)
	if err != nil {
		return err
	}
	if vm.Power != inventory.PoweredOff {
		return fault.New(fault.Conflict, "VM %s is %s at its source again, so it is not started at its target: two copies would run", vm.Name, vm.Power).
			WithHint("to start the VM at its target, shut it down at the source and run the same command again")
	}
	return nil
}

// MarkDisconnected marks the cards that were disconnected while the VM ran: a powered-off VM does not report
// that, and a disconnected VM must not reappear on its network.
func MarkDisconnected(running, off *inventory.VM) (warnings []inventory.Warning) {
	off.NICs = slices.Clone(off.NICs)
	for _, was := range running.NICs {
		at := slices.IndexFunc(off.NICs, func(n inventory.NIC) bool { return n.Key == was.Key })
		if at < 0 || was.Connected || !was.StartConnected {
			continue
		}
		off.NICs[at].DisconnectedByDecamp = true
		warnings = append(warnings, inventory.Warning{
			Code: "nic-pulled", Text: fmt.Sprintf("network card %s was disconnected while the VM ran, and is disconnected at the target", was.MAC),
			Remedy: "connect it at the target when the VM may use it",
		})
	}
	return warnings
}
