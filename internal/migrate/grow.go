package migrate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
)

// A disk may become larger while its VM is moved warm. What change tracking tells across that
// is not to be trusted (KB 2090639), so the next round compares all of that disk. Its new size
// is on record before an image grows: by a step that does nothing else after it found out. A
// disk that has a snapshot does not grow, so what a snapshot of ours says of sizes stays true
// while it is there.

// larger returns the disks that have more bytes in is than they had, by key: how many they had.
func larger(was, is *inventory.VM) map[int32]int64 {
	grown := map[int32]int64{}
	for _, d := range was.Disks {
		if now, ok := is.Disk(d.Key); ok && now.Capacity > d.Capacity {
			grown[d.Key] = d.Capacity
		}
	}
	return grown
}

// grownTo is was with its disks as large as they are in is, where they became larger. Their
// change ids are those of is, too: whatever was written to them will be compared.
func grownTo(was, is *inventory.VM) *inventory.VM {
	vm := *was
	vm.Disks = slices.Clone(was.Disks)
	grown := larger(was, is)
	for i := range vm.Disks {
		d := &vm.Disks[i]
		if _, grew := grown[d.Key]; !grew {
			continue
		}
		now, _ := is.Disk(d.Key)
		d.Capacity, d.Used, d.ChangeID = now.Capacity, now.Used, now.ChangeID
	}
	return &vm
}

// withSizes is vm with other sizes of its disks, by key.
func withSizes(vm *inventory.VM, sizes map[int32]int64) *inventory.VM {
	other := *vm
	other.Disks = slices.Clone(vm.Disks)
	for i := range other.Disks {
		if size, ok := sizes[other.Disks[i].Key]; ok {
			other.Disks[i].Capacity = size
		}
	}
	return &other
}

// follow puts the disks of vm that became larger into the facts, if they fit the target, and
// reports whether there are any. The step is to end then, and with it the facts are on record.
func (r *Run) follow(ctx context.Context, vm *inventory.VM) (grew bool, err error) {
	had := larger(r.Facts.VM, vm)
	if len(had) == 0 {
		return false, nil
	}
	grown := grownTo(r.Facts.VM, vm)
	images, err := r.place(ctx, grown)
	if err != nil {
		return false, fmt.Errorf("a disk of VM %s has grown: %w", vm.Name, err)
	}
	if !slices.EqualFunc(images, r.Facts.Images, samePlace) {
		return false, fault.New(fault.Internal, "a disk of VM %s has grown, and the target has another place for its image", vm.Name)
	}
	r.Facts.VM = grown
	for i := range images {
		r.Facts.Images[i].Size = images[i].Size
	}
	r.noteGrown(had)
	return true, nil
}

func samePlace(a, b targets.Image) bool {
	return a.Key == b.Key && a.Path == b.Path && a.Format == b.Format
}

// noteGrown says which disks are to be compared, and remembers it. A disk that grows again
// before that was compared as little since it had its first size.
func (r *Run) noteGrown(had map[int32]int64) {
	w := r.Facts.Warm
	if w.Grown == nil {
		w.Grown = map[int32]int64{}
	}
	for _, d := range r.Facts.VM.Disks {
		was, grew := had[d.Key]
		if !grew {
			continue
		}
		if _, before := w.Grown[d.Key]; !before {
			w.Grown[d.Key] = was
		}
		r.tell(plan.Event{Kind: plan.Noted, Disk: d.Key, Message: fmt.Sprintf("disk %d %s", d.Key, r.afterGrowth(d.Key))})
	}
}

// afterGrowth says in words what becomes of a disk that grew.
func (r *Run) afterGrowth(key int32) string {
	d, _ := r.Facts.VM.Disk(key)
	text := fmt.Sprintf("has grown from %d to %d MiB", r.Facts.Warm.Grown[key]>>20, d.Capacity>>20)
	if rounds := r.Facts.Warm.Rounds; len(rounds) > 0 {
		text += fmt.Sprintf(": all of it is read and compared once; the first round took %v", rounds[0].Took.Round(time.Second))
	}
	return text
}

// grew reports whether a disk became larger since the last round.
func (r *Run) grew(key int32) bool {
	_, grew := r.Facts.Warm.Grown[key]
	return grew
}
