package migrate

import (
	"context"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
)

// Profile is the hardware a VM gets on the target.
type Profile string

// Compat is the hardware that QEMU has in common with VMware. The guest keeps the drivers
// it has and is not changed; the target gives each device its counterpart.
const Compat Profile = "compat"

// convertStep decides the hardware. There is one profile, so it only says what the guest
// found in the images makes of it.
type convertStep struct{}

func (convertStep) Name() string { return "convert" }

func (convertStep) Run(_ context.Context, r *Run) error {
	r.Facts.Profile = Compat
	for _, w := range bootWarnings(r.Facts.VM.Firmware, r.Facts.Guest) {
		r.warn(w)
	}
	return nil
}

// Undo: no image was changed.
func (convertStep) Undo(context.Context, *Run) error { return nil }

// bootWarnings compares the firmware with what the images offer to boot.
func bootWarnings(firmware inventory.Firmware, reports []guest.Report) []inventory.Warning {
	var mbr, esp bool
	for _, r := range reports {
		mbr, esp = mbr || r.Boot.MBRCode, esp || r.Boot.ESP
	}
	switch {
	case firmware == inventory.EFI && !esp:
		return []inventory.Warning{{Code: "no-esp", Text: "the VM boots by EFI, but no disk has an EFI system partition",
			Remedy: "check that it boots at the source; it may boot from the network"}}
	case firmware == inventory.BIOS && !mbr:
		return []inventory.Warning{{Code: "no-boot-code", Text: "the VM boots by BIOS, but no disk has boot code",
			Remedy: "check that it boots at the source; it may boot from the network"}}
	}
	return nil
}
