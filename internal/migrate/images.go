package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// imagePlace is one image of a target, as an image.Opener.
type imagePlace struct {
	target targets.Target // target that contains the image
	img    targets.Image  // description of the image
	warm   WarmRun        // warm part of the run; nil for a cold run
}

// Open opens the image for writing. A running rehearsal continues to read the earlier content.
func (p imagePlace) Open(ctx context.Context) (disk.Target, bool, error) {
	t, created, err := p.target.Open(ctx, p.img)
	if err != nil {
		return nil, false, err
	}
	if p.warm != nil {
		t = p.warm.Guard(p.img.Key, t)
	}
	return t, created, nil
}

// Read opens a finished image for reading.
func (p imagePlace) Read(ctx context.Context) (disk.Source, error) { return p.target.Read(ctx, p.img) }

// ReadUnfinished opens an image for reading that may still be written.
func (p imagePlace) ReadUnfinished(ctx context.Context) (disk.Source, error) {
	return p.target.ReadUnfinished(ctx, p.img)
}

// Images are the images of a run at its target.
type Images struct {
	record *Record        // results and events of the run
	target targets.Target // target of the images
	warm   WarmRun        // warm part of the run; nil unless this process executes a warm run
	rig    *Environment   // connections to the source, for samples
	permit Permit         // whether the VM must be started
	opts   *Options       // options of the Migrator
}

// Job returns the job that creates or continues img.
func (m *Images) Job(img targets.Image) image.Job {
	j := image.Job{
		Opener: imagePlace{m.target, img, m.warm}, Path: img.Path, Manifest: img.Manifest, Info: m.record.Info(img),
		Anew:   func(why string) { m.reportRestart(img, why) },
		GiveUp: fmt.Sprintf("discard this run with %s, and start again", m.record.Plan.ID.RollbackCommand()),
		Seed:   m.opts.Seed,
	}
	if m.record.Facts.Warm != nil {
		j.Grow = func(ctx context.Context, least int64) error { return m.target.Grow(ctx, img, least) }
	}
	if m.canReopen(img) {
		j.Source = func(ctx context.Context) (disk.Source, error) { return m.openAgain(ctx, img) }
	}
	return j
}

// canReopen reports whether the source of img can be read a second time, as a flat file.
func (m *Images) canReopen(img targets.Image) bool {
	d, ok := m.record.Facts.VM.Disk(img.Key)
	return m.rig.Open != nil && ok && d.Backing == inventory.Flat
}

// openAgain opens the source of img for a second reading. The caller closes it.
func (m *Images) openAgain(ctx context.Context, img targets.Image) (disk.Source, error) {
	d, ok := m.record.Facts.VM.Disk(img.Key)
	if !ok {
		return nil, fault.New(fault.Internal, "no disk %d", img.Key)
	}
	return m.rig.Open(ctx, transport.Disk{VM: m.record.Facts.VM, Disk: d})
}

// reportRestart reports that an image is copied again from the start, with the reason.
func (m *Images) reportRestart(img targets.Image, why string) {
	m.opts.Log.Warn("image is copied again", "run", m.record.Plan.ID, "disk", img.Key, "reason", why)
	m.record.Report(journal.Event{Kind: journal.DiskRestarted, Disk: img.Key, Message: why})
}

// PlanImages requests images from the target and checks its contract: one for each disk, in order and of its
// size. If the VM must be started, a target that cannot start VMs is refused first.
func (m *Images) PlanImages(ctx context.Context, vm *inventory.VM) ([]targets.Image, error) {
	if err := m.checkStarter(); err != nil {
		return nil, err
	}
	images, err := m.target.Plan(ctx, vm)
	if err != nil {
		return nil, fmt.Errorf("plan images of VM %s: %w", vm.Name, err)
	}
	if len(images) != len(vm.Disks) {
		return nil, fault.New(fault.Internal, "target planned %d images for %d disks", len(images), len(vm.Disks))
	}
	for i, d := range vm.Disks {
		if images[i].Key != d.Key || images[i].Size != d.Capacity {
			return nil, fault.New(fault.Internal, "target planned image %d of %d bytes for disk %d of %d",
				images[i].Key, images[i].Size, d.Key, d.Capacity)
		}
	}
	return images, nil
}

// checkStarter returns an error if the VM must be started and the target cannot start VMs, before
// anything is copied.
func (m *Images) checkStarter() error {
	if !m.permit.Start {
		return nil
	}
	_, err := targets.StarterOf(m.target)
	return err
}

// ReadEach opens all images for reading. No round may write to them meanwhile. The caller closes them,
// for example with CloseAll.
func (m *Images) ReadEach(ctx context.Context) (srcs []disk.Source, err error) {
	for _, img := range m.record.Facts.Images {
		src, err := m.target.ReadUnfinished(ctx, img)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("image of disk %d: %w", img.Key, err), CloseAll(srcs))
		}
		srcs = append(srcs, src)
	}
	return srcs, nil
}

// CloseAll closes all sources, and returns all errors.
func CloseAll(srcs []disk.Source) error {
	var errs []error
	for _, src := range srcs {
		errs = append(errs, src.Close())
	}
	return errors.Join(errs...)
}

// isSealed reports whether the image's manifest is complete and has the root that copy sealed.
func isSealed(img targets.Image) bool {
	s, err := manifest.Load(img.Manifest)
	if err != nil {
		return false
	}
	defer s.Close()
	return s.Root().String() == img.Root
}

// CopyBegun reports whether data of an image may have been copied: its manifest exists.
func CopyBegun(img targets.Image) bool {
	_, err := manifest.ReadInfo(img.Manifest)
	return err == nil
}
