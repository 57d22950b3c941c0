package warm

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
)

// A disk may grow during a warm migration. Change tracking is not reliable across that (KB 2090639), so
// the next round compares all of that disk. A separate step records its new size before an image grows.
// A disk with a snapshot cannot grow, so sizes in a snapshot of decamp stay valid while it exists.

// recordGrowth records the disks of vm that became larger, if they fit the target, and reports whether
// there are any. The step should return then, so that the facts are recorded.
func (m *migration) recordGrowth(ctx context.Context, vm *inventory.VM) (grew bool, err error) {
	had := migrate.GrownDisks(m.record.Facts.VM, vm)
	if len(had) == 0 {
		return false, nil
	}
	grown := migrate.GrownTo(m.record.Facts.VM, vm)
	images, err := m.run.Images.PlanImages(ctx, grown)
	if err != nil {
		return false, fmt.Errorf("a disk of VM %s has grown: %w", vm.Name, err)
	}
	if !slices.EqualFunc(images, m.record.Facts.Images, samePlace) {
		return false, fault.New(fault.Internal, "a disk of VM %s has grown, but the target selects another location for its image", vm.Name)
	}
	m.record.Facts.VM = grown
	for i := range images {
		m.record.Facts.Images[i].Size = images[i].Size
	}
	m.noteGrown(had)
	return true, nil
}

// samePlace reports whether two images are at the same place. Their sizes may differ.
func samePlace(a, b targets.Image) bool {
	return a.Key == b.Key && a.Path == b.Path && a.Format == b.Format
}

// noteGrown records the disks that must be compared. A disk that grows again before its comparison
// keeps its first size there.
func (m *migration) noteGrown(had map[int32]int64) {
	w := m.record.Facts.Warm
	if w.Grown == nil {
		w.Grown = map[int32]int64{}
	}
	for _, d := range m.record.Facts.VM.Disks {
		was, grew := had[d.Key]
		if !grew {
			continue
		}
		if _, before := w.Grown[d.Key]; !before {
			w.Grown[d.Key] = was
		}
		m.record.Report(journal.Event{Kind: journal.Noted, Disk: d.Key, Message: fmt.Sprintf("disk %d %s", d.Key, afterGrowth(m.record, d.Key))})
	}
}

// afterGrowth describes the handling of a disk that grew.
func afterGrowth(r *migrate.Record, key int32) string {
	d, _ := r.Facts.VM.Disk(key)
	text := fmt.Sprintf("has grown from %d to %d MiB", r.Facts.Warm.Grown[key]>>20, d.Capacity>>20)
	if rounds := r.Facts.Warm.Rounds; len(rounds) > 0 {
		text += fmt.Sprintf(": the whole disk is read and compared once; the first round took %v", rounds[0].Duration.Round(time.Second))
	}
	return text
}
