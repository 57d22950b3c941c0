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

// look says what will become of the guest, long before the VM is switched off for it: after the first
// round is proven its images are looked into, and converted on overlays of which nothing is kept.
// Only a guest that surely cannot be converted, and was to be, ends the run. Whatever else goes
// wrong is known in the outage, as it would be without this.
//
// A run that goes on after that was perhaps mended at the source: it has another round first, so that
// the images have what was done. Then the look is not done, and is to be done again.
func look(ctx context.Context, m *migration) error {
	if !m.driven.fresh {
		return nil
	}
	m.driven.rehearsals.still(m.run)
	g, err := lookNow(ctx, m.run)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.record.Facts.Warm.ToLook = false
	if err != nil {
		m.record.Foretell("not-looked", "none is needed: it is looked at again when the VM is off", "whether the guest can be converted is known only in the outage: %v", err)
		return deliverEarly(ctx, m.run)
	}
	tellGuest(m.run, g.Guest)
	if err := judge(m.run, g); err != nil {
		return err
	}
	return deliverEarly(ctx, m.run)
}

func lookNow(ctx context.Context, r *migrate.Run) (g migrate.Preview, err error) {
	srcs, err := r.Images.ReadEach(ctx)
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, migrate.CloseAll(srcs)) }()
	return migrate.PreviewGuest(ctx, r, srcs)
}

// usual are warnings of a guest that runs: its file systems are mounted, its registry is open.
var usual = []string{"ntfs-dirty", "ntfs-journal", "registry-dirty", "hibernated"}

// tellGuest tells what was found inside. It is on record when it is found in what is published.
func tellGuest(r *migrate.Run, reports []guest.Report) {
	for _, w := range migrate.BootWarnings(r.Record.Facts.VM.Firmware, reports) {
		r.Record.Foretell(w.Code, w.Remedy, "%s", w.Text)
	}
	for i, report := range reports {
		for _, w := range report.Warnings {
			if !slices.Contains(usual, w.Code) {
				r.Record.Foretell(w.Code, "", "disk %d: %s", r.Record.Facts.Images[i].Key, w.Text)
			}
		}
		if report.Verdict != "" {
			r.Record.Tell(journal.Event{Kind: journal.Noted, Message: "guest: " + report.Verdict})
		}
	}
}

// judge says what a conversion came to. It ends a run that cannot end well.
func judge(r *migrate.Run, g migrate.Preview) error {
	switch {
	case g.Refused == nil && g.Hardware == targets.Virtio:
		r.Record.Tell(journal.Event{Kind: journal.Noted, Message: "the guest can be converted for virtio: it was, on overlays of which nothing is kept"})
	case g.Refused == nil:
	case g.Unsure:
		r.Record.Foretell("not-looked", fault.HintOf(g.Refused), "whether the guest can be converted is known only in the outage, when it is shut down: %v", g.Refused)
	case r.Record.Plan.Hardware == journal.AutoHardware:
		r.Record.Foretell("not-converted", "none is needed: it boots with the drivers it has", "the guest will not be converted, and keeps the hardware it has: %v", g.Refused)
	default:
		return cannotConvertYet(g.Refused)
	}
	return nil
}

// cannotConvertYet is cannotConvert before the outage.
func cannotConvertYet(err error) error {
	return fault.New(fault.KindOf(err), "the guest cannot be converted for virtio: %w", err).
		WithHint("%s. The VM was not switched off, and runs on: mend the guest, and the same command looks again after another round; or give the run up with --discard, and begin anew with --hardware auto",
			strings.TrimSuffix(fault.HintOf(err), "."))
}

// deliverEarly has a target that has more to do with the images begin with it, after a round that was
// proven: in the outage only what the last round changed is left to be done. That it fails is told, and
// no reason to stop: after the next round it is tried again, and in the outage by commit, which says why
// then.
func deliverEarly(ctx context.Context, r *migrate.Run) error {
	early, ok := r.Rig.Target.(targets.Preparer)
	if !ok {
		return nil
	}
	def := r.Definition()
	def.Progress = nil // it is not what the run waits for
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
	r.Record.Tell(journal.Event{Kind: journal.Warned, Warning: &inventory.Warning{
		Code:   "early-delivery",
		Text:   fmt.Sprintf("what is copied could not be delivered before the outage (%v): it is tried again after the next round, else the outage waits for it", err),
		Remedy: fault.HintOf(err),
	}})
	return nil
}
