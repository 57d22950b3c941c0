package migrate

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
)

// commitStep publishes the VM, and starts it if that is wanted. It is the point of no return: before it
// nothing is visible on the target, after it nothing is undone. The source VM stays as it is, off;
// one that was powered on since it was copied is not published: there would be two.
type commitStep struct{}

func (commitStep) Name() string { return "commit" }

func (commitStep) Run(ctx context.Context, r *Run) error {
	if r.damagedSince(ctx) {
		if err := r.takeBack(); err != nil {
			return err
		}
		if err := (verifyStep{}).Run(ctx, r); err != nil {
			return fmt.Errorf("verify again: %w", err)
		}
	}
	if err := r.proven(); err != nil {
		return err
	}
	if err := r.unchanged(ctx); err != nil {
		return err
	}
	for _, img := range r.Facts.Images { // what is published is proven as a whole, or anew
		if err := image.ForgetProven(img.Manifest); err != nil {
			return err
		}
	}
	if err := r.amend(ctx); err != nil {
		return err
	}
	began := r.opts.Now()
	if err := r.Rig.Target.Publish(ctx, r.definition()); err != nil {
		return err
	}
	published := r.opts.Now()
	if err := r.start(ctx); err != nil {
		return err
	}
	r.Facts.Outage = r.outage(began, published)
	r.tell(plan.Event{Kind: plan.Summarized, Stages: r.Facts.Stages, Outage: r.Facts.Outage})
	return nil
}

// Undo does nothing: what Publish made visible is not removed, and what a failed Publish
// left goes with the images, by copy's Undo.
func (commitStep) Undo(context.Context, *Run) error { return nil }

// definition is the VM as it is published.
func (r *Run) definition() targets.Definition {
	def := targets.Definition{
		Progress: r.meter(0).delivering, VM: r.Facts.VM, Images: slices.Clone(r.Facts.Images), Guest: r.Facts.Guest, EFI: r.Facts.EFI, Hardware: r.Facts.Profile,
		Decamp: r.opts.Version, Warnings: r.Facts.Warnings, Checks: r.Facts.Checks(),
	}
	if c := r.Facts.Conversion; c != nil {
		def.Converted = &c.Result
	}
	return def
}

// damagedSince reports whether a manifest is there that is not whole any more: a machine that crashed
// between verify and commit may have left anything behind its end. One that is not there was
// published already, or Publish says what is gone; one that commit itself has opened goes on.
func (r *Run) damagedSince(ctx context.Context) bool {
	return slices.ContainsFunc(r.Facts.Images, func(img targets.Image) bool {
		return (there(img.Manifest) || there(overlayOf(img))) && !r.unconverted(ctx, img) && !r.amending(ctx, img)
	})
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// proven is the last look before the point of no return: every image was verified with
// the root that copy sealed.
func (r *Run) proven() error {
	same := func(img targets.Image, v Verified) bool {
		return img.Key == v.Key && img.Root != "" && img.Root == v.Root
	}
	if len(r.Facts.Images) == 0 || !slices.EqualFunc(r.Facts.Images, r.Facts.Verified, same) {
		return fault.New(fault.Internal, "not every image of VM %s was verified", r.Facts.VM.Name)
	}
	return nil
}
