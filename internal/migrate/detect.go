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

func (detectStep) Name() string { return "detect" }

func (detectStep) Run(ctx context.Context, r *Run) error {
	recorders := make([]*chunkRecorder, len(r.Facts.Images))
	reports, err := r.detect(ctx, r.Facts.Images, func(i int, src disk.Source) disk.Source {
		recorders[i] = newChunkRecorder(src)
		return recorders[i]
	})
	if err != nil {
		return err
	}
	r.Facts.Guest, r.Facts.Metadata = reports, map[int32][]int64{}
	for i, img := range r.Facts.Images {
		r.Facts.Metadata[img.Key] = recorders[i].chunks
	}
	if r.Facts.EFI, err = r.firmware(ctx, reports); err != nil {
		return err
	}
	for i, report := range reports {
		for _, w := range report.Warnings {
			r.warn(inventory.Warning{Code: w.Code, Text: fmt.Sprintf("disk %d: %s", r.Facts.Images[i].Key, w.Text)})
		}
		if report.Verdict != "" {
			r.tell(plan.Event{Kind: plan.Noted, Message: "guest: " + report.Verdict})
		}
	}
	return nil
}

// Undo: detect changes nothing.
func (detectStep) Undo(context.Context, *Run) error { return nil }

// detect looks into all images at once: a guest may have its volumes on several. It reads image i
// through wrap.
func (r *Run) detect(ctx context.Context, images []targets.Image, wrap func(i int, src disk.Source) disk.Source) ([]guest.Report, error) {
	return guest.DetectEach(ctx, len(images), func(i int) (disk.Source, error) {
		src, err := r.Rig.Target.Read(ctx, images[i])
		if err != nil {
			return nil, fmt.Errorf("image of disk %d: %w", images[i].Key, err)
		}
		return wrap(i, src), nil
	})
}
