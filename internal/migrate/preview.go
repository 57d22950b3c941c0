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

// A Preview is the expected result of publishing a warm run's images now: their contents, and a
// temporary conversion. The images are in the state of a VM after a power cut, so a journal that must
// be replayed is normal.
type Preview struct {
	Guest    []guest.Report   // contents of the images, in their order
	Disks    []convert.Disk   // overlays above the images; with the conversion, if there is one
	Hardware targets.Hardware // hardware for the guest after the conversion
	Refused  error            // why a guest is not converted that the plan requires to be converted; nil if it is or need not be
	Unsure   bool             // the refusal may not apply after a shutdown

	Converted *convert.Result // result of the conversion; nil if none
}

// PreviewGuest examines images that srcs read, and converts the guest on overlays in memory. The caller
// closes srcs.
func PreviewGuest(ctx context.Context, r *Run, srcs []disk.Source) (p Preview, err error) {
	if p.Guest, err = guest.DetectEach(ctx, len(srcs), func(i int) (disk.Source, error) { return borrowedSource{srcs[i]}, nil }); err != nil {
		return p, fmt.Errorf("examine the images: %w", err)
	}
	for i, src := range srcs {
		p.Disks = append(p.Disks, convert.Disk{Overlay: overlay.New(borrowedSource{src}, maxOverlay), Report: p.Guest[i]})
	}
	p.Hardware = targets.Compat
	if r.Record.Plan.Hardware != journal.Virtio && r.Record.Plan.Hardware != journal.AutoHardware {
		return p, nil
	}
	facts := r.Record.Facts.cloneFacts()
	facts.Guest = p.Guest // the contents may differ at publication
	c := newConverter(r.WithFacts(facts))
	_, v2v := c.permittedEngines()
	switch result, err := c.tryAppending(ctx, p.Disks); {
	case err == nil:
		p.Hardware, p.Converted = targets.Virtio, &result
	case isRefusal(err):
		p.Refused, p.Unsure = err, v2v || dependsOnShutdown(err, p.Guest)
	default:
		return p, fmt.Errorf("convert the guest on overlays: %w", err)
	}
	return p, nil
}

// tryAppending changes the guest with linux-append, if the plan permits it. It does not try virt-v2v,
// which takes minutes and requires a guest that was shut down.
func (c *converter) tryAppending(ctx context.Context, disks []convert.Disk) (convert.Result, error) {
	if err := checkConvertible(c.record.Facts.Guest); err != nil {
		return convert.Result{}, err
	}
	if appends, _ := c.permittedEngines(); !appends {
		return convert.Result{}, fault.New(fault.Unsupported, "the conversion requires virt-v2v, which can only convert a guest that is shut down").
			WithHint("no action is required: if virt-v2v refuses the guest, nothing is published, and %s powers the VM on again", c.record.Plan.ID.RollbackCommand())
	}
	return c.appendOn(ctx, disks)
}

// borrowedSource is a source that its owner closes.
type borrowedSource struct{ disk.Source }

// Close does nothing.
func (borrowedSource) Close() error { return nil }
