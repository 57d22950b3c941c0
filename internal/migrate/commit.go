package migrate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/targets"
)

// commitStep publishes the VM, and starts it if that is requested. It is the point of no return: before
// it nothing is visible on the target, and after it Discard removes nothing. The source VM stays
// powered off. A VM that was powered on since it was copied is not published, because two instances
// would run.
type commitStep struct{}

// Name implements Step.
func (commitStep) Name() string { return StepCommit }

// Run implements Step. It verifies damaged images again, and checks the source VM a last time before it
// publishes.
func (commitStep) Run(ctx context.Context, r *Run) error {
	if damagedSince(ctx, r) {
		if err := newOverlays(r).dropChangedChunks(); err != nil {
			return err
		}
		if err := (verifyStep{}).Run(ctx, r); err != nil {
			return fmt.Errorf("verify again: %w", err)
		}
	}
	if err := checkVerified(r.Record); err != nil {
		return err
	}
	if err := r.VM.checkUnchanged(ctx); err != nil {
		return err
	}
	for _, img := range r.Record.Facts.Images { // a published image is verified as a whole, or copied again
		if err := image.RemoveVerifiedRecord(img.Manifest); err != nil {
			return err
		}
	}
	if err := newOverlays(r).amendAll(ctx); err != nil {
		return err
	}
	began := r.Options.Now()
	if err := r.Env.Target.Publish(ctx, r.Definition()); err != nil {
		return err
	}
	published := r.Options.Now()
	if err := startVM(ctx, r); err != nil {
		return err
	}
	r.Record.Facts.Outage = newOutage(r, began, published)
	r.Record.Report(journal.Event{Kind: journal.Summarized, Stages: r.Record.Facts.Stages, Outage: r.Record.Facts.Outage})
	return nil
}

// Undo does nothing: a published VM is not removed, and copyStep.Undo removes the images that a failed
// Publish left.
func (commitStep) Undo(context.Context, *Run) error { return nil }

// damagedSince reports whether a manifest exists that is not complete any more: a machine that crashed
// between verify and commit may have left incomplete data. A missing manifest means that its image was
// published already, or Publish reports the missing image. A manifest that commit itself has opened is
// used as it is.
func damagedSince(ctx context.Context, r *Run) bool {
	return slices.ContainsFunc(r.Record.Facts.Images, func(img targets.Image) bool {
		return (fileExists(img.Manifest) || fileExists(overlayOf(img))) && !newOverlays(r).isUnconverted(ctx, img) && !newOverlays(r).isAmending(ctx, img)
	})
}

// checkVerified is the last check before the point of no return: every image was verified with the root
// that copy sealed. A difference is fault.Internal.
func checkVerified(r *Record) error {
	same := func(img targets.Image, v Verified) bool {
		return img.Key == v.Key && img.Root != "" && img.Root == v.Root
	}
	if len(r.Facts.Images) == 0 || !slices.EqualFunc(r.Facts.Images, r.Facts.Verified, same) {
		return fault.New(fault.Internal, "not every image of VM %s was verified", r.Facts.VM.Name)
	}
	return nil
}

// newOutage returns how long the VM was off until it is published or runs again. began and published
// are the times of its publication. It returns nil if this run did not power the VM off, or if the time
// is not recorded.
func newOutage(r *Run, began, published time.Time) *journal.Outage {
	if r.Record.Facts.Warm == nil || r.Record.Facts.Warm.PoweredOff.IsZero() {
		return nil
	}
	o := &journal.Outage{Began: r.Record.Facts.Warm.PoweredOff, Took: r.Options.Now().Sub(r.Record.Facts.Warm.PoweredOff), Started: r.Record.Facts.Started != nil}
	if _, ok := r.Env.Target.(targets.Sender); ok {
		o.Delivery = published.Sub(began)
	}
	return o
}

// startVM powers the published VM on, if the run requests it. It is part of commit: if the run was
// killed before the start was recorded, the VM runs already. A VM that does not start stays published,
// and the run is not done.
func startVM(ctx context.Context, r *Run) error {
	if !r.Permit.Start {
		return nil
	}
	s, err := targets.StarterOf(r.Env.Target)
	if err != nil {
		return err
	}
	if err := r.VM.checkOff(ctx); err != nil {
		return err
	}
	r.Record.Report(journal.Event{Kind: journal.Noted, Message: "starting at the target"})
	began := r.Options.Now()
	var started targets.Started
	err = r.Retry.Do(ctx, 0, func() (_ bool, err error) {
		started, err = s.Start(ctx, r.Definition())
		return false, err
	})
	if err != nil {
		return notStarted(err)
	}
	r.Record.Facts.Started = &started
	r.Record.AddStage(journal.StageTime{Name: "start", Elapsed: r.Options.Now().Sub(began)})
	r.Record.Report(journal.Event{Kind: journal.Noted, Message: "runs at the target"})
	return nil
}

// notStarted returns the error of a failed start, with the state of the VM and the next command.
func notStarted(err error) error {
	return fault.New(fault.KindOf(err), "the VM is published, but does not start: %w", err).
		WithHint("%s; then run the same command again, or without --start to leave the VM off", fault.HintOf(err))
}
