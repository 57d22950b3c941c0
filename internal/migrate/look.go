package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
)

// look says what will become of the guest, long before the VM is switched off for it: after the first
// round is proven its images are looked into, and converted on overlays of which nothing is kept.
// Only a guest that surely cannot be converted, and was to be, ends the run. Whatever else goes
// wrong is known in the outage, as it would be without this.
//
// A run that goes on after that was perhaps mended at the source: it has another round first, so that
// the images have what was done. Then the look is not done, and is to be done again.
func look(ctx context.Context, r *Run) error {
	if !r.stand.fresh() {
		return nil
	}
	r.stand.still(r)
	g, err := r.lookNow(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.Facts.Warm.ToLook = false
	if err != nil {
		r.foretell("not-looked", "none is needed: it is looked at again when the VM is off", "whether the guest can be converted is known only in the outage: %v", err)
		return r.deliverEarly(ctx)
	}
	r.tellGuest(g.guest)
	if err := r.judge(g); err != nil {
		return err
	}
	return r.deliverEarly(ctx)
}

func (r *Run) lookNow(ctx context.Context) (g glimpse, err error) {
	srcs, err := r.readEach(ctx)
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, closeAll(srcs)) }()
	return r.glimpse(ctx, srcs)
}

// usual are warnings of a guest that runs: its file systems are mounted, its registry is open.
var usual = []string{"ntfs-dirty", "ntfs-journal", "registry-dirty", "hibernated"}

// tellGuest tells what was found inside. It is on record when it is found in what is published.
func (r *Run) tellGuest(reports []guest.Report) {
	for _, w := range bootWarnings(r.Facts.VM.Firmware, reports) {
		r.foretell(w.Code, w.Remedy, "%s", w.Text)
	}
	for i, report := range reports {
		for _, w := range report.Warnings {
			if !slices.Contains(usual, w.Code) {
				r.foretell(w.Code, "", "disk %d: %s", r.Facts.Images[i].Key, w.Text)
			}
		}
		if report.Verdict != "" {
			r.tell(plan.Event{Kind: plan.Noted, Message: "guest: " + report.Verdict})
		}
	}
}

// judge says what a conversion came to. It ends a run that cannot end well.
func (r *Run) judge(g glimpse) error {
	switch {
	case g.refused == nil && g.hardware == targets.Virtio:
		r.tell(plan.Event{Kind: plan.Noted, Message: "the guest can be converted for virtio: it was, on overlays of which nothing is kept"})
	case g.refused == nil:
	case g.unsure:
		r.foretell("not-looked", fault.HintOf(g.refused), "whether the guest can be converted is known only in the outage, when it is shut down: %v", g.refused)
	case r.Plan.Hardware == plan.AutoHardware:
		r.foretell("not-converted", "none is needed: it boots with the drivers it has", "the guest will not be converted, and keeps the hardware it has: %v", g.refused)
	default:
		return cannotConvertYet(g.refused)
	}
	return nil
}

// foretell is warn for what is true now: it need not be when the VM is published.
func (r *Run) foretell(code, remedy, format string, args ...any) {
	r.tell(plan.Event{Kind: plan.Warned, Warning: &inventory.Warning{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy}})
}

// cannotConvertYet is cannotConvert before the outage.
func cannotConvertYet(err error) error {
	return fault.New(fault.KindOf(err), "the guest cannot be converted for virtio: %w", err).
		WithHint("%s. The VM was not switched off, and runs on: mend the guest, and the same command looks again after another round; or give the run up with --discard, and begin anew with --hardware auto",
			strings.TrimSuffix(fault.HintOf(err), "."))
}
