package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// copyStep copies all disks into images, in parallel, and seals their manifests.
type copyStep struct{}

// Name implements Step.
func (copyStep) Name() string { return stepCopy }

// Run implements Step. It requires a transfer slot, and ends it when all disks are copied.
func (copyStep) Run(ctx context.Context, r *Run) error {
	if err := r.Slot.Acquire(ctx, copyStage(r.Record)); err != nil {
		return err
	}
	defer r.Slot.Release()
	if err := r.VM.checkUnchangedRecent(ctx); err != nil {
		return err
	}
	if err := newOverlays(r).dropUnrecorded(ctx); err != nil {
		return err
	}
	stages := make([]journal.StageTime, len(r.Record.Facts.Images))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.Options.Disks)
	for i := range r.Record.Facts.Images {
		g.Go(func() (err error) {
			stages[i], err = copyDisk(ctx, r, &r.Record.Facts.Images[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, s := range stages {
		r.Record.AddStage(s)
	}
	return nil
}

// copyStage returns the stage of the transfer. A warm run copies in this step only to repair images,
// while its VM is off.
func copyStage(r *Record) TransferKind {
	if r.Facts.Warm != nil {
		return AtCutover
	}
	return NextStage(r)
}

// Undo removes the images and their manifests.
func (copyStep) Undo(ctx context.Context, r *Run) error {
	if len(r.Record.Facts.Images) == 0 {
		return nil
	}
	var errs []error
	for _, img := range r.Record.Facts.Images {
		errs = append(errs, manifest.Remove(img.Manifest), image.RemoveVerifiedRecord(img.Manifest))
	}
	return errors.Join(append(errs, r.Env.Target.Discard(ctx, r.Record.Facts.VM, r.Record.Facts.Images))...)
}

// copyDisk copies one disk. It retries while the copy fails for reasons that pass; newly copied chunks
// count as progress.
func copyDisk(ctx context.Context, r *Run, img *targets.Image) (journal.StageTime, error) {
	defer notifySettled(r, img.Key)
	var total blockcopy.Result
	began, missing := r.Options.Now(), int64(-1)
	err := r.Retry.Do(ctx, img.Key, func() (bool, error) {
		res, left, err := copyOnce(ctx, r, img)
		total = total.Then(res)
		further := left >= 0 && left < missing
		missing = left
		return further, err
	})
	if err != nil {
		return journal.StageTime{}, fmt.Errorf("disk %d: %w", img.Key, err)
	}
	r.Record.Report(journal.Event{Kind: journal.DiskDone, Disk: img.Key, Message: img.Root})
	return stageOf(fmt.Sprintf("copy %d", img.Key), total, r.Options.Now().Sub(began)), nil
}

// notifySettled reports to the Environment that a disk needs no transfer for now.
func notifySettled(r *Run, key int32) {
	if r.Env.Settled != nil {
		r.Env.Settled(key)
	}
}

// copyOnce makes one attempt, and returns how many chunks are missing after it; -1 if unknown.
func copyOnce(ctx context.Context, r *Run, img *targets.Image) (res blockcopy.Result, missing int64, err error) {
	var root manifest.Hash
	root, missing, err = r.Images.Job(*img).Fill(ctx, func(ctx context.Context, c *image.Copying) (err error) {
		res, err = transferDisk(ctx, r, *img, c)
		return err
	})
	if err == nil {
		img.Root = root.String()
	}
	return res, missing, err
}

// transferDisk copies the missing chunks of a disk with the transport of the run.
func transferDisk(ctx context.Context, r *Run, img targets.Image, c *image.Copying) (blockcopy.Result, error) {
	r.Record.Report(journal.Event{Kind: journal.DiskStarted, Disk: img.Key, Message: c.From()})
	d, ok := r.Record.Facts.VM.Disk(img.Key)
	if !ok {
		return blockcopy.Result{}, fault.New(fault.Internal, "an image belongs to no disk of VM %s", r.Record.Facts.VM.Name)
	}
	return r.Env.Transport.Transfer(ctx, transport.Job{
		Disk:     transport.Disk{VM: r.Record.Facts.VM, Disk: d},
		Target:   c.Target,
		Manifest: c.Log,
		Progress: r.Record.Meter(img.Key).Copying,
		Pace:     r.Env.Pace,
		Free:     r.Env.Free,
		ReadBack: imagePlace{r.Env.Target, img, nil}.ReadUnfinished,
	})
}

// stageOf returns the result of a copy as a stage, with the time of each part.
func stageOf(name string, r blockcopy.Result, elapsed time.Duration) journal.StageTime {
	return journal.StageTime{
		Name: name, Bytes: r.Done, Read: r.Read, Elapsed: elapsed,
		Working: r.HashTime + r.WriterHash, Source: r.ReadTime, Target: r.WriteTime + r.SyncTime,
	}
}

// NextStage returns the stage of the next transfer of a VM whose power state does not change: Again if
// an image has data, else First.
func NextStage(r *Record) TransferKind {
	if slices.ContainsFunc(r.Facts.Images, CopyBegun) {
		return Again
	}
	return First
}
