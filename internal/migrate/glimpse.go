package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/overlay"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
)

// A glimpse is what a warm run's images would be published as, if that was now: what is inside, and
// a conversion that nothing is kept of. They are as the VM would find its disks after a power cut,
// so a journal that is to be replayed is nothing unusual.
type glimpse struct {
	guest    []guest.Report
	disks    []convert.Disk // overlays above the images; with the conversion, if there is one
	hardware targets.Hardware
	refused  error // why the guest is not converted, where the plan wants that
	unsure   bool  // that it would be refused when it was shut down, too

	converted *convert.Result // nil: nothing is
}

// glimpse looks into images that srcs read. Closing those is left to the caller.
func (r *Run) glimpse(ctx context.Context, srcs []disk.Source) (g glimpse, err error) {
	if g.guest, err = guest.DetectEach(ctx, len(srcs), func(i int) (disk.Source, error) { return lent{srcs[i]}, nil }); err != nil {
		return g, fmt.Errorf("look into the images: %w", err)
	}
	for i, src := range srcs {
		g.disks = append(g.disks, convert.Disk{Overlay: overlay.New(lent{src}, maxOverlay), Report: g.guest[i]})
	}
	g.hardware = targets.Compat
	if r.Plan.Hardware != plan.Virtio && r.Plan.Hardware != plan.AutoHardware {
		return g, nil
	}
	as := *r // what is found now is not what will be published
	as.Facts = r.Facts.apart()
	as.Facts.Guest = g.guest
	_, v2v := as.engines()
	switch result, err := as.tryAppending(ctx, g.disks); {
	case err == nil:
		g.hardware, g.converted = targets.Virtio, &result
	case refused(err):
		g.refused, g.unsure = err, v2v || unsure(err, g.guest)
	default:
		return g, fmt.Errorf("convert the guest on overlays: %w", err)
	}
	return g, nil
}

// tryAppending has linux-append change the guest, where the plan lets it. virt-v2v is not tried out: it
// takes minutes, and wants a guest that was shut down.
func (r *Run) tryAppending(ctx context.Context, disks []convert.Disk) (convert.Result, error) {
	if err := convertible(r.Facts.Guest); err != nil {
		return convert.Result{}, err
	}
	if appends, _ := r.engines(); !appends {
		return convert.Result{}, fault.New(fault.Unsupported, "virt-v2v changes the guest, and does so when it is shut down").
			WithHint("none is needed: should virt-v2v refuse it, nothing is published, and --discard powers the VM on again")
	}
	return r.appendOn(ctx, disks)
}

// lent is a source that is closed by whoever lent it.
type lent struct{ disk.Source }

func (lent) Close() error { return nil }

// unsure reports whether a refusal may be due to the guest being up: its file systems were not
// unmounted, so they may not be read right, and are not written without an appliance.
func unsure(err error, reports []guest.Report) bool {
	unread := func(w guest.Warning) bool { return w.Code == "file-system" }
	return fault.Is(err, fault.Conflict) || fault.Is(err, fault.Corrupt) ||
		slices.ContainsFunc(reports, func(g guest.Report) bool { return slices.ContainsFunc(g.Warnings, unread) })
}

// apart returns facts to which another goroutine may add.
func (f Facts) apart() Facts {
	f.Images, f.Warnings, f.Stages = slices.Clone(f.Images), slices.Clone(f.Warnings), slices.Clone(f.Stages)
	if f.Warm != nil {
		w := *f.Warm
		w.Rounds = slices.Clone(w.Rounds)
		f.Warm = &w
	}
	return f
}

// readEach opens the images, which no round writes to meanwhile.
func (r *Run) readEach(ctx context.Context) (srcs []disk.Source, err error) {
	for _, img := range r.Facts.Images {
		src, err := r.Rig.Target.ReadUnfinished(ctx, img)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("image of disk %d: %w", img.Key, err), closeAll(srcs))
		}
		srcs = append(srcs, src)
	}
	return srcs, nil
}
