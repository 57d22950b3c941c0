package migrate

import (
	"context"

	"github.com/decamp/decamp/internal/inventory"
)

// runPreflight checks, before anything is created or powered off, that the VM is the planned one, that
// it has no obstacles, that the target has a place for its disks and that the transport can read them.
// It powers the VM off before the check of the transport.
func runPreflight(ctx context.Context, r *Run) error {
	vm, err := r.VM.firstVM(ctx)
	if err != nil {
		return err
	}
	if err := r.VM.Refuse(vm, r.Permit); err != nil {
		return err
	}
	images, err := r.Images.PlanImages(ctx, vm)
	if err != nil {
		return err
	}
	if vm.Power != inventory.PoweredOff { // the VM stays on while the run waits for a transfer slot
		if err := r.Slot.Acquire(ctx, First); err != nil {
			return err
		}
	}
	if vm, err = r.VM.PowerOff(ctx, vm); err != nil {
		return err
	}
	if err := r.VM.Probe(ctx, vm, ""); err != nil {
		return err
	}
	r.Record.Facts.VM, r.Record.Facts.Images = vm, images
	for _, w := range vm.Warnings {
		r.Record.Warn(w)
	}
	return nil
}
