package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// copyStep fills every image, in parallel, and seals its manifest.
type copyStep struct{}

func (copyStep) Name() string { return "copy" }

func (copyStep) Run(ctx context.Context, r *Run) error {
	if err := r.takeTurn(ctx, r.copyStage()); err != nil {
		return err
	}
	defer r.turn.back()
	if err := r.unchangedLately(ctx); err != nil {
		return err
	}
	if err := r.disownOverlays(ctx); err != nil {
		return err
	}
	stages := make([]plan.Stage, len(r.Facts.Images))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.opts.Disks)
	for i := range r.Facts.Images {
		g.Go(func() (err error) {
			stages[i], err = r.copyDisk(ctx, &r.Facts.Images[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, s := range stages {
		r.addStage(s)
	}
	return nil
}

// copyStage: what a warm run copies as a cold one does, it mends while the VM is off.
func (r *Run) copyStage() Stage {
	if r.Facts.Warm != nil {
		return AtCutover
	}
	return r.stage()
}

// Undo removes the images and their manifests.
func (copyStep) Undo(ctx context.Context, r *Run) error {
	if len(r.Facts.Images) == 0 {
		return nil
	}
	var errs []error
	for _, img := range r.Facts.Images {
		errs = append(errs, manifest.Remove(img.Manifest), image.ForgetProven(img.Manifest))
	}
	return errors.Join(append(errs, r.Rig.Target.Discard(ctx, r.Facts.VM, r.Facts.Images))...)
}

// unchanged makes sure that the VM is still off and is what it was when the run began:
// days may lie between two attempts, and hours between copy and commit.
func (r *Run) unchanged(ctx context.Context) error {
	vm, err := r.plannedVM(ctx)
	if err != nil {
		return err
	}
	return r.unchangedSince(r.Facts.VM, vm)
}

// unchangedLately is unchanged, but does not ask again where preflight was a moment ago.
func (r *Run) unchangedLately(ctx context.Context) error {
	if vm := r.sight.recent(r.opts.Now()); vm != nil {
		return r.unchangedSince(r.Facts.VM, vm)
	}
	return r.unchanged(ctx)
}

// unchangedSince makes sure that the VM is off, and what it was.
func (r *Run) unchangedSince(was, vm *inventory.VM) error {
	if err := sameDisks(was, vm); err != nil {
		return err
	}
	if err := r.refuse(vm, Permit{}); err != nil {
		e := fault.New(fault.KindOf(err), "the VM changed since this run began: %w", err)
		return e.WithHint("%s; what was copied so far may be stale: give this run up with --discard and begin again", fault.HintOf(err))
	}
	return nil
}

// copyDisk copies one disk, again and again while it fails for reasons that pass. Chunks
// that were copied in between count as getting further.
func (r *Run) copyDisk(ctx context.Context, img *targets.Image) (plan.Stage, error) {
	defer r.settle(img.Key)
	var total blockcopy.Result
	began, missing := r.opts.Now(), int64(-1)
	err := r.retry(ctx, img.Key, func() (bool, error) {
		res, left, err := r.copyOnce(ctx, img)
		total = total.Then(res)
		further := left >= 0 && left < missing
		missing = left
		return further, err
	})
	if err != nil {
		return plan.Stage{}, fmt.Errorf("disk %d: %w", img.Key, err)
	}
	r.tell(plan.Event{Kind: plan.DiskDone, Disk: img.Key, Message: img.Root})
	return stageOf(fmt.Sprintf("copy %d", img.Key), total, r.opts.Now().Sub(began)), nil
}

// settle says that a disk needs no transfer any more, for now.
func (r *Run) settle(key int32) {
	if r.Rig.Settled != nil {
		r.Rig.Settled(key)
	}
}

// copyOnce does one try and returns how many chunks are missing after it, -1 if unknown.
func (r *Run) copyOnce(ctx context.Context, img *targets.Image) (res blockcopy.Result, missing int64, err error) {
	var root manifest.Hash
	root, missing, err = r.job(*img).Fill(ctx, func(ctx context.Context, c *image.Copying) (err error) {
		res, err = r.transfer(ctx, *img, c)
		return err
	})
	if err == nil {
		img.Root = root.String()
	}
	return res, missing, err
}

func (r *Run) transfer(ctx context.Context, img targets.Image, c *image.Copying) (blockcopy.Result, error) {
	r.tell(plan.Event{Kind: plan.DiskBegan, Disk: img.Key, Message: c.From()})
	d, ok := r.Facts.VM.Disk(img.Key)
	if !ok {
		return blockcopy.Result{}, fault.New(fault.Internal, "image is of no disk of VM %s", r.Facts.VM.Name)
	}
	return r.Rig.Transport.Transfer(ctx, transport.Job{
		Disk:     transport.Disk{VM: r.Facts.VM, Disk: d},
		Target:   c.Target,
		Manifest: c.Log,
		Progress: r.meter(img.Key).copying,
		Pace:     r.Rig.Pace,
		Free:     r.Rig.Free,
		ReadBack: placed{r.Rig.Target, img, nil}.ReadUnfinished,
	})
}

func stageOf(name string, r blockcopy.Result, elapsed time.Duration) plan.Stage {
	return plan.Stage{
		Name: name, Bytes: r.Done, Moved: r.Read, Elapsed: elapsed,
		Working: r.HashTime + r.WriterHash, Source: r.ReadTime, Target: r.WriteTime + r.SyncTime,
	}
}
