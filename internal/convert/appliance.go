package convert

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/guest/budget"
)

// convertInAppliance converts the file systems of the layout in an appliance and unmounts them.
func (l layout) convertInAppliance(ctx context.Context, b *budget.Budget, vols []volume, disks []Disk, o Options) (_ Result, err error) {
	var parts []Volume
	for _, p := range l {
		parts = append(parts, Volume{Name: p.volume.displayName(), Kind: p.volume.kind, Device: p.volume.device, Subvolume: p.subvolume})
	}
	m, err := o.Appliance.Mount(ctx, parts)
	if err != nil {
		return Result{}, fmt.Errorf("mount the guest's file systems: %w", err)
	}
	// After Unmount, Close does nothing.
	defer func() { err = errors.Join(err, m.Close()) }()
	var t tree
	for i, p := range l {
		t = append(t, mount{p.path, m.FileSystem(i)})
	}
	// The devices contain all changes only after Unmount.
	result, err := convertGuest(b, t, vols, disks, o)
	if err != nil {
		return Result{}, err
	}
	for _, name := range m.Replayed() {
		result.addNote("the file system on %s was not unmounted cleanly: its journal was replayed, on the overlay", name)
	}
	if err := m.Unmount(); err != nil {
		return Result{}, fmt.Errorf("unmount the guest's file systems: %w", err)
	}
	return result, nil
}

// newLayers returns a writable layer above each disk. mergeLayers applies them; otherwise they are
// discarded.
func newLayers(disks []Disk) []Disk {
	above := make([]Disk, len(disks))
	for i, d := range disks {
		above[i] = Disk{d.Overlay.NewLayer(), d.Report}
	}
	return above
}

// mergeLayers moves the writes of the layers into the overlays of the disks: all of them, or none if
// one does not fit.
func mergeLayers(disks, above []Disk) error {
	// All limits are checked before the first overlay changes.
	for i := range disks {
		if err := disks[i].Overlay.CheckMerge(above[i].Overlay); err != nil {
			return err
		}
	}
	for i := range disks {
		disks[i].Overlay.Merge(above[i].Overlay)
	}
	return nil
}
