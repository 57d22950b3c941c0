package migrate

import (
	"context"
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
)

// firmware is what of the VM's firmware goes with it: its boot entries as its .nvram file has them, or made
// of the loaders that detect found. That the file cannot be had ends no run: a guest is started by what is
// on its disks, too.
func firmware(ctx context.Context, r *Run, reports []guest.Report) (*efi.State, error) {
	if r.Record.Facts.VM.Firmware != inventory.EFI {
		return nil, nil
	}
	held, err := held(ctx, r)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		r.Record.Warn(inventory.Warning{Code: "efi-nvram", Text: fmt.Sprintf("the file with the variables of the VM's EFI firmware is not read: %v", err),
			Remedy: "none is needed if its boot entry is told from its disks; keys enrolled with mokutil are to be enrolled again"})
	}
	state := guest.EFIState(reports, held)
	if state.Empty() {
		return nil, nil
	}
	r.Record.Tell(plan.Event{Kind: plan.Noted, Message: "EFI: " + told(state)})
	return &state, nil
}

// held is what the VM's firmware holds, nothing where that is not asked.
func held(ctx context.Context, r *Run) (s efi.State, err error) {
	vm := r.Record.Facts.VM
	if r.Rig.NVRAM == nil || vm.NVRAM.File == "" {
		return s, nil
	}
	var file []byte
	err = r.Retry.Do(ctx, 0, func() (_ bool, err error) {
		file, err = r.Rig.NVRAM(ctx, vm)
		return false, err
	})
	if err != nil || len(file) == 0 { // it was never on
		return s, err
	}
	vars, err := efi.ReadVMware(file)
	if err != nil {
		return s, fmt.Errorf("%s: %w", vm.NVRAM, err)
	}
	s, _ = efi.StateOf(vars)
	return s, nil
}

func told(s efi.State) string {
	var what []string
	for _, e := range s.Entries {
		what = append(what, fmt.Sprintf("boot entry %q starts %q", e.Label, e.File))
	}
	for _, k := range s.Keys {
		what = append(what, "shim's "+k.Name)
	}
	return strings.Join(what, ", ")
}
