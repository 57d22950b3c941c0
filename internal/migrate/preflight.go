package migrate

import (
	"cmp"
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// runPreflight looks before anything is created or switched off: the VM is the one that
// was planned, nothing about it stands in the way, the transport can read its disks and
// the target has a place for them. Only then is the VM powered off.
func runPreflight(ctx context.Context, r *Run) error {
	vm, err := r.firstSight(ctx)
	if err != nil {
		return err
	}
	if err := r.refuse(vm, r.Permit); err != nil {
		return err
	}
	images, err := r.place(ctx, vm)
	if err != nil {
		return err
	}
	if vm.Power != inventory.PoweredOff { // it is not to be off while it stands in line
		if err := r.takeTurn(ctx, First); err != nil {
			return err
		}
	}
	if vm, err = r.powerOff(ctx, vm); err != nil {
		return err
	}
	if err := r.probe(ctx, vm, ""); err != nil {
		return err
	}
	r.Facts.VM, r.Facts.Images = vm, images
	for _, w := range vm.Warnings {
		r.warn(w)
	}
	return nil
}

// plannedVM reads the VM anew and makes sure that its reference still means it: after a
// host was set up again, reference 12 is another machine. What people put on it is as it was
// when the run saw it first: no round and no outage waits for tags.
func (r *Run) plannedVM(ctx context.Context) (*inventory.VM, error) {
	known, read := cmp.Or(r.Facts.VM, r.sight.last()), r.Rig.Source.BareVM
	if known == nil {
		read = r.Rig.Source.VM
	}
	vm, err := r.readVM(ctx, read)
	if err != nil {
		return nil, err
	}
	if known != nil {
		vm.Adorn(known)
	}
	return vm, r.recognize(vm)
}

// firstSight is plannedVM, unless the caller has just read the VM.
func (r *Run) firstSight(ctx context.Context) (*inventory.VM, error) {
	if r.Rig.Seen == nil {
		return r.plannedVM(ctx)
	}
	return r.Rig.Seen, r.recognize(r.Rig.Seen)
}

// recognize makes sure that vm is the one that was planned.
func (r *Run) recognize(vm *inventory.VM) error {
	if vm.UUID != r.Plan.VM.UUID || vm.InstanceUUID != r.Plan.VM.InstanceUUID {
		return fault.New(fault.Conflict, "VM %s is now %q with UUID %s; planned was %q with %s",
			vm.Ref, vm.Name, vm.UUID, r.Plan.VM.Name, r.Plan.VM.UUID).
			WithHint("look up the VM again with decamp ls, and give this run up with --discard")
	}
	r.sight.set(vm, r.opts.Now())
	return nil
}

func (r *Run) readVM(ctx context.Context, read func(context.Context, string) (*inventory.VM, error)) (vm *inventory.VM, err error) {
	err = r.retry(ctx, 0, func() (bool, error) {
		vm, err = read(ctx, string(r.Plan.VM.Ref))
		return false, err
	})
	if err != nil {
		return nil, fmt.Errorf("read VM %s: %w", r.Plan.VM.Name, err)
	}
	return vm, nil
}

// place asks the target for images and holds it to its contract: one for each disk, in
// order and of its size. A target that starts no VMs is not asked, if one is to be started.
func (r *Run) place(ctx context.Context, vm *inventory.VM) ([]targets.Image, error) {
	if err := r.startable(); err != nil {
		return nil, err
	}
	images, err := r.Rig.Target.Plan(ctx, vm)
	if err != nil {
		return nil, fmt.Errorf("plan images of VM %s: %w", vm.Name, err)
	}
	if len(images) != len(vm.Disks) {
		return nil, fault.New(fault.Internal, "target planned %d images for %d disks", len(images), len(vm.Disks))
	}
	for i, d := range vm.Disks {
		if images[i].Key != d.Key || images[i].Size != d.Capacity {
			return nil, fault.New(fault.Internal, "target planned image %d of %d bytes for disk %d of %d",
				images[i].Key, images[i].Size, d.Key, d.Capacity)
		}
	}
	return images, nil
}

// powerOff does so if it must, and returns the VM as it is then.
func (r *Run) powerOff(ctx context.Context, vm *inventory.VM) (*inventory.VM, error) {
	if vm.Power == inventory.PoweredOff {
		return vm, nil
	}
	r.tell(plan.Event{Kind: plan.PowerChanged, Message: "powering off"})
	err := r.retryBusy(ctx, func() error {
		return r.Rig.Source.PowerOff(ctx, vm.Ref, r.Permit.Wait, r.Permit.Force)
	})
	if err != nil {
		return nil, fmt.Errorf("power off VM %s: %w", vm.Name, err)
	}
	r.tell(plan.Event{Kind: plan.PowerChanged, Message: "powered off"})
	off, err := r.plannedVM(ctx)
	if err != nil {
		return nil, err
	}
	if r.Facts.Warm != nil {
		vm = grownTo(vm, off) // disks of a warm run may grow
	}
	if err := sameShape(vm, off); err != nil { // what the guest wrote last may have moved the change ids
		return nil, err
	}
	for _, w := range Pulled(vm, off) {
		r.warn(w)
	}
	return off, r.refuse(off, Permit{})
}

// probe asks the transport whether it can move every disk, at a snapshot if there is one.
func (r *Run) probe(ctx context.Context, vm *inventory.VM, snapshot inventory.MoRef) error {
	for i := range vm.Disks {
		var offer transport.Offer
		err := r.retry(ctx, vm.Disks[i].Key, func() (_ bool, err error) {
			offer, err = r.Rig.Transport.Probe(ctx, transport.Disk{VM: vm, Disk: &vm.Disks[i], Snapshot: snapshot})
			return false, err
		})
		if err != nil {
			return fmt.Errorf("probe disk %d: %w", vm.Disks[i].Key, err)
		}
		if !offer.Usable {
			return fault.New(fault.Unsupported, "%s cannot move disk %d: %s", r.Rig.Transport.Name(), vm.Disks[i].Key, offer.Reason).
				WithHint("move the VM with another transport, or change the disk as said")
		}
	}
	return nil
}
