package migrate

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/overlay"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/targets"
)

// A Preview is what a warm run's images would be published as, if that was now: what is inside, and
// a conversion that is not kept. The images are as the VM would find its disks after a power cut,
// so a journal that is to be replayed is nothing unusual.
type Preview struct {
	Guest    []guest.Report
	Disks    []convert.Disk // overlays above the images; with the conversion, if there is one
	Hardware targets.Hardware
	Refused  error // why the guest is not converted, where the plan wants that
	Unsure   bool  // that it would be refused when it was shut down, too

	Converted *convert.Result // nil: nothing is
}

// PreviewGuest looks into images that srcs read. Closing those is left to the caller.
func PreviewGuest(ctx context.Context, r *Run, srcs []disk.Source) (p Preview, err error) {
	if p.Guest, err = guest.DetectEach(ctx, len(srcs), func(i int) (disk.Source, error) { return lent{srcs[i]}, nil }); err != nil {
		return p, fmt.Errorf("look into the images: %w", err)
	}
	for i, src := range srcs {
		p.Disks = append(p.Disks, convert.Disk{Overlay: overlay.New(lent{src}, maxOverlay), Report: p.Guest[i]})
	}
	p.Hardware = targets.Compat
	if r.Record.Plan.Hardware != journal.Virtio && r.Record.Plan.Hardware != journal.AutoHardware {
		return p, nil
	}
	facts := r.Record.Facts.copied()
	facts.Guest = p.Guest // what is found now is not what will be published
	c := newConverter(r.With(facts))
	_, v2v := c.engines()
	switch result, err := c.tryAppending(ctx, p.Disks); {
	case err == nil:
		p.Hardware, p.Converted = targets.Virtio, &result
	case refused(err):
		p.Refused, p.Unsure = err, v2v || unsure(err, p.Guest)
	default:
		return p, fmt.Errorf("convert the guest on overlays: %w", err)
	}
	return p, nil
}

// tryAppending has linux-append change the guest, where the plan lets it. virt-v2v is not tried out: it
// takes minutes, and wants a guest that was shut down.
func (c *converter) tryAppending(ctx context.Context, disks []convert.Disk) (convert.Result, error) {
	if err := convertible(c.record.Facts.Guest); err != nil {
		return convert.Result{}, err
	}
	if appends, _ := c.engines(); !appends {
		return convert.Result{}, fault.New(fault.Unsupported, "virt-v2v changes the guest, and does so when it is shut down").
			WithHint("none is needed: should virt-v2v refuse it, nothing is published, and --discard powers the VM on again")
	}
	return c.appendOn(ctx, disks)
}

// lent is a source that is closed by whoever lent it.
type lent struct{ disk.Source }

func (lent) Close() error { return nil }
