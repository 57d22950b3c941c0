package migrate

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// placed is one image of a target, as an image.Place.
type placed struct {
	target targets.Target
	img    targets.Image
	stand  *stand
}

// Open opens the image to be written to. A rehearsal that reads it goes on reading what it was.
func (p placed) Open(ctx context.Context) (disk.Target, bool, error) {
	t, created, err := p.target.Open(ctx, p.img)
	if err != nil {
		return nil, false, err
	}
	return p.stand.guard(p.img.Key, t), created, nil
}

func (p placed) Read(ctx context.Context) (disk.Source, error) { return p.target.Read(ctx, p.img) }

func (p placed) ReadUnfinished(ctx context.Context) (disk.Source, error) {
	return p.target.ReadUnfinished(ctx, p.img)
}

// job is what is to become of img.
func (r *Run) job(img targets.Image) image.Job {
	j := image.Job{
		Place: placed{r.Rig.Target, img, r.stand}, Path: img.Path, Manifest: img.Manifest, Info: r.info(img),
		Anew:   func(why string) { r.anew(img, why) },
		GiveUp: "give this run up with --discard and begin again",
		Seed:   r.opts.Seed,
	}
	if r.Facts.Warm != nil {
		j.Grow = func(ctx context.Context, least int64) error { return r.Rig.Target.Grow(ctx, img, least) }
	}
	if r.readable(img) {
		j.Source = func(ctx context.Context) (disk.Source, error) { return r.openAgain(ctx, img) }
	}
	return j
}

// readable reports whether there is a second way to the source of img: a file to be read.
func (r *Run) readable(img targets.Image) bool {
	d, ok := r.Facts.VM.Disk(img.Key)
	return r.Rig.Open != nil && ok && d.Backing == inventory.Flat
}

// openAgain opens the source of img for a second reading.
func (r *Run) openAgain(ctx context.Context, img targets.Image) (disk.Source, error) {
	d, ok := r.Facts.VM.Disk(img.Key)
	if !ok {
		return nil, fault.New(fault.Internal, "no disk %d", img.Key)
	}
	return r.Rig.Open(ctx, transport.Disk{VM: r.Facts.VM, Disk: d})
}

// anew tells that an image is copied again from its beginning, and why.
func (r *Run) anew(img targets.Image, why string) {
	r.opts.Log.Warn("image is copied anew", "run", r.Plan.ID, "disk", img.Key, "why", why)
	r.tell(plan.Event{Kind: plan.DiskAnew, Disk: img.Key, Message: why})
}

// info is the identity a manifest is bound to. What a warm run copied is of a VM that ran on:
// a cold one must not take it for the disk as it is.
func (r *Run) info(img targets.Image) manifest.Info {
	i := manifest.Info{
		Disk: fmt.Sprint(img.Key), Size: img.Size,
		Source: fmt.Sprintf("%s %s %s %d", r.Plan.ID, r.Plan.VM.Ref, r.Plan.VM.InstanceUUID, img.Key),
	}
	if r.Plan.Warm {
		i.Source += " warm"
	}
	return i
}
