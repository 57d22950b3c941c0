package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/target"
)

// detectStep looks into the images: partitions, boot code, operating system. What the
// API knows (firmware, controllers, cards, UUIDs, guest id) is in Facts.VM already.
type detectStep struct{}

func (detectStep) Name() string { return "detect" }

func (detectStep) Run(ctx context.Context, r *Run) error {
	r.Facts.Guest = nil
	for _, img := range r.Facts.Images {
		report, err := r.detect(ctx, img)
		if err != nil {
			return fmt.Errorf("image of disk %d: %w", img.Key, err)
		}
		for _, w := range report.Warnings {
			r.warn(inventory.Warning{Code: w.Code, Text: fmt.Sprintf("disk %d: %s", img.Key, w.Text)})
		}
		r.Facts.Guest = append(r.Facts.Guest, report)
	}
	return nil
}

// Undo: detect changes nothing.
func (detectStep) Undo(context.Context, *Run) error { return nil }

func (r *Run) detect(ctx context.Context, img target.Image) (_ guest.Report, err error) {
	src, err := r.Rig.Target.Read(ctx, img)
	if err != nil {
		return guest.Report{}, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return guest.Detect(ctx, src)
}
