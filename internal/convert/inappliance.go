package convert

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/guest/budget"
)

// mounted converts the layout's file systems in an appliance, to the unmounting.
func (l layout) mounted(ctx context.Context, b *budget.Budget, vols []volume, disks []Disk, o Options) (_ Result, err error) {
	var parts []Volume
	for _, p := range l {
		parts = append(parts, Volume{Name: p.on.name(), Kind: p.on.kind, Device: p.on.device, Subvolume: p.subvolume})
	}
	m, err := o.Appliance.Mount(ctx, parts)
	if err != nil {
		return Result{}, fmt.Errorf("mount the guest's file systems: %w", err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	var t tree
	for i, p := range l {
		t = append(t, mount{p.at, m.FileSystem(i)})
	}
	result, err := convert(b, t, vols, disks, o)
	if err != nil {
		return Result{}, err
	}
	for _, name := range m.Replayed() {
		result.note("the file system on %s was not unmounted cleanly: its journal was replayed, on the overlay", name)
	}
	if err := m.Unmount(); err != nil {
		return Result{}, fmt.Errorf("unmount the guest's file systems: %w", err)
	}
	return result, nil
}

// layers returns disks above disks, to be taken or thrown away.
func layers(disks []Disk) []Disk {
	above := make([]Disk, len(disks))
	for i, d := range disks {
		above[i] = Disk{d.Overlay.Above(), d.Report}
	}
	return above
}

// take moves the writes of the layers above the disks into their overlays: all of them, or none.
func take(disks, above []Disk) error {
	for i := range disks {
		if err := disks[i].Overlay.Fits(above[i].Overlay); err != nil {
			return err
		}
	}
	for i := range disks {
		disks[i].Overlay.Take(above[i].Overlay)
	}
	return nil
}
