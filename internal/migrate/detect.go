package migrate

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
)

// detectStep looks into the images: partitions, boot code, operating system. What the
// API knows (firmware, controllers, cards, UUIDs, guest id) is in Facts.VM already. What the
// firmware held is read from the host, while the VM is off.
type detectStep struct{}

func (detectStep) Name() string { return StepDetect }

func (detectStep) Run(ctx context.Context, r *Run) error {
	recorders := make([]*chunkRecorder, len(r.Record.Facts.Images))
	reports, err := detect(ctx, r, r.Record.Facts.Images, func(i int, src disk.Source) disk.Source {
		recorders[i] = newChunkRecorder(src)
		return recorders[i]
	})
	if err != nil {
		return err
	}
	r.Record.Facts.Guest, r.Record.Facts.Metadata = reports, map[int32][]int64{}
	for i, img := range r.Record.Facts.Images {
		r.Record.Facts.Metadata[img.Key] = recorders[i].chunks
	}
	if r.Record.Facts.EFI, err = firmware(ctx, r, reports); err != nil {
		return err
	}
	for i, report := range reports {
		for _, w := range report.Warnings {
			r.Record.Warn(inventory.Warning{Code: w.Code, Text: fmt.Sprintf("disk %d: %s", r.Record.Facts.Images[i].Key, w.Text)})
		}
		if report.Verdict != "" {
			r.Record.Tell(plan.Event{Kind: plan.Noted, Message: "guest: " + report.Verdict})
		}
	}
	return nil
}

// Undo: detect changes nothing.
func (detectStep) Undo(context.Context, *Run) error { return nil }

// detect looks into all images at once: a guest may have its volumes on several. It reads image i
// through wrap.
func detect(ctx context.Context, r *Run, images []targets.Image, wrap func(i int, src disk.Source) disk.Source) ([]guest.Report, error) {
	return guest.DetectEach(ctx, len(images), func(i int) (disk.Source, error) {
		src, err := r.Rig.Target.Read(ctx, images[i])
		if err != nil {
			return nil, fmt.Errorf("image of disk %d: %w", images[i].Key, err)
		}
		return wrap(i, src), nil
	})
}
