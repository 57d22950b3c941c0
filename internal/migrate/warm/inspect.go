package warm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
)

// inspectGuest examines the guest long before the VM is powered off: after the first round is verified,
// it reads the images and converts them on temporary overlays. Only a guest that certainly cannot be
// converted, and must be, ends the run. Other errors appear in the outage as well. If the run was
// continued, the guest may have been repaired at the source. Then another round precedes the
// inspection, so that the images contain the repair.
func inspectGuest(ctx context.Context, m *migration) error {
	if !m.driven.roundDone {
		return nil
	}
	m.driven.rehearsals.markAtRest(m.run)
	g, err := previewImages(ctx, m.run)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.record.Facts.Warm.InspectPending = false
	if err != nil {
		m.record.ReportWarning("not-looked", "no action is required: the guest is examined again when the VM is off", "the guest can only be examined for a conversion during the outage: %v", err)
		return deliverEarly(ctx, m.run)
	}
	reportGuest(m.run, g.Guest)
	if err := reportPreview(m.run, g); err != nil {
		return err
	}
	return deliverEarly(ctx, m.run)
}

// previewImages examines the current images. No round may write to them meanwhile.
func previewImages(ctx context.Context, r *migrate.Run) (g migrate.Preview, err error) {
	srcs, err := r.Images.ReadEach(ctx)
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, migrate.CloseAll(srcs)) }()
	return migrate.PreviewGuest(ctx, r, srcs)
}

// runningGuestWarnings are the codes of warnings that are normal for a running guest: its file systems
// are mounted, its registry is open.
var runningGuestWarnings = []string{"ntfs-dirty", "ntfs-journal", "registry-dirty", "hibernated"}

// reportGuest reports the contents of the guest. They are recorded only when the published images are
// examined.
func reportGuest(r *migrate.Run, reports []guest.Report) {
	for _, w := range migrate.BootWarnings(r.Record.Facts.VM.Firmware, reports) {
		r.Record.ReportWarning(w.Code, w.Remedy, "%s", w.Text)
	}
	for i, report := range reports {
		for _, w := range report.Warnings {
			if !slices.Contains(runningGuestWarnings, w.Code) {
				r.Record.ReportWarning(w.Code, "", "disk %d: %s", r.Record.Facts.Images[i].Key, w.Text)
			}
		}
		if report.Verdict != "" {
			r.Record.Report(journal.Event{Kind: journal.Noted, Message: "guest: " + report.Verdict})
		}
	}
}

// reportPreview reports whether the guest can be converted. It returns an error for a run that cannot
// succeed.
func reportPreview(r *migrate.Run, g migrate.Preview) error {
	switch {
	case g.Refused == nil && g.Hardware == targets.Virtio:
		r.Record.Report(journal.Event{Kind: journal.Noted, Message: "the guest can be converted for virtio, as a conversion on temporary overlays showed"})
	case g.Refused == nil:
	case g.Unsure:
		r.Record.ReportWarning("not-looked", fault.HintOf(g.Refused), "the guest can only be examined for a conversion during the outage, when it is shut down: %v", g.Refused)
	case r.Record.Plan.Hardware == journal.AutoHardware:
		r.Record.ReportWarning("not-converted", "no action is required: the guest boots with its drivers", "the guest will not be converted and keeps its hardware: %v", g.Refused)
	default:
		return cannotConvertYet(r, g.Refused)
	}
	return nil
}

// cannotConvertYet returns the error for a guest that cannot be converted, before the outage.
func cannotConvertYet(r *migrate.Run, err error) error {
	return fault.New(fault.KindOf(err), "the guest cannot be converted for virtio: %w", err).
		WithHint("%s. The VM was not powered off: repair the guest and run the same command, which checks again after another round; or discard the run with %s and start again with --hardware auto",
			strings.TrimSuffix(fault.HintOf(err), "."), r.Record.Plan.ID.RollbackCommand())
}

// deliverEarly lets a target start its work on the images after a verified round, so that the outage
// handles only the changes of the last round. A failure is reported and does not end the run: the next
// round tries again, and finally commit in the outage, which returns the error.
func deliverEarly(ctx context.Context, r *migrate.Run) error {
	early, ok := r.Env.Target.(targets.Preparer)
	if !ok {
		return nil
	}
	def := r.Definition()
	def.Progress = nil // the run does not wait for the delivery
	began := r.Options.Now()
	err := early.Prepare(ctx, def)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		rounds := r.Record.Facts.Warm.Rounds
		rounds[len(rounds)-1].Delivered = r.Options.Now().Sub(began)
		r.Options.Log.Info("delivered early", "run", r.Record.Plan.ID)
		return nil
	}
	r.Options.Log.Warn("not delivered early", "run", r.Record.Plan.ID, "err", err)
	r.Record.Report(journal.Event{Kind: journal.Warned, Warning: &inventory.Warning{
		Code:   "early-delivery",
		Text:   fmt.Sprintf("the copied data could not be delivered before the outage (%v): decamp tries again after the next round, or during the outage", err),
		Remedy: fault.HintOf(err),
	}})
	return nil
}
