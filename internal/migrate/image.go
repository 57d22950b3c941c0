package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/target"
)

// copying is one image open for writing, with its manifest.
type copying struct {
	img    target.Image
	target disk.Target
	log    *manifest.Log
}

func (c *copying) close() error { return errors.Join(c.target.Close(), c.log.Close()) }

// complete finishes the image, then seals the manifest: a sealed manifest says that the
// image beside it is finished. Either may have been done before.
func (c *copying) complete(ctx context.Context) (root string, err error) {
	if err := c.target.Finish(ctx); err != nil {
		return "", fmt.Errorf("finish image: %w", err)
	}
	hash, err := c.log.Seal(ctx)
	if err != nil {
		return "", err
	}
	return hash.String(), nil
}

// finished reports whether an earlier try completed the image, and with what root. Such
// an image is not opened for writing again: that would make it an unfinished one beside
// a manifest that says otherwise, should a crash come then. Verify reads it anyway.
func (r *Run) finished(ctx context.Context, img target.Image) (root string, ok bool) {
	s, err := manifest.Load(img.Manifest)
	if err != nil {
		return "", false
	}
	defer s.Close()
	src, err := r.Rig.Target.Read(ctx, img)
	if err != nil {
		return "", false
	}
	return s.Root().String(), src.Close() == nil && s.Info() == r.info(img)
}

// openImage opens or creates the image and its manifest, and makes them agree: a
// manifest never lists a chunk that the image may not hold.
//
//	image    manifest             then
//	new      any                  the manifest is made anew
//	there    of this disk         what it lists is trusted, after a sample was checked
//	there    of another, damaged  it is made anew, and everything is copied again
//	there    none                 likewise
func (r *Run) openImage(ctx context.Context, img target.Image) (_ *copying, err error) {
	t, created, err := r.Rig.Target.Open(ctx, img)
	if err != nil {
		return nil, fmt.Errorf("open image: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.Size() != img.Size {
		return nil, fault.New(fault.Conflict, "image %s has %d bytes, the disk %d", img.Path, t.Size(), img.Size).
			WithHint("give this run up with --discard and begin again")
	}
	log, err := r.openManifest(img, created)
	if err != nil {
		return nil, err
	}
	c := &copying{img: img, target: t, log: log}
	if err := r.checkResumed(ctx, c); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return c, nil
}

func (r *Run) openManifest(img target.Image, created bool) (*manifest.Log, error) {
	if created {
		return r.newManifest(img)
	}
	log, err := manifest.Open(img.Manifest)
	switch {
	case fault.Is(err, fault.NotFound):
		return r.newManifest(img)
	case fault.Is(err, fault.Corrupt):
		r.anew(img, err.Error())
		return r.newManifest(img)
	case err != nil:
		return nil, err
	}
	if log.Info() != r.info(img) {
		r.anew(img, fmt.Sprintf("its manifest is of %v", log.Info()))
		return r.renewManifest(img, log)
	}
	return log, nil
}

func (r *Run) renewManifest(img target.Image, old *manifest.Log) (*manifest.Log, error) {
	if err := old.Close(); err != nil {
		return nil, err
	}
	return r.newManifest(img)
}

func (r *Run) newManifest(img target.Image) (*manifest.Log, error) {
	if err := manifest.Remove(img.Manifest); err != nil {
		return nil, err
	}
	return manifest.Create(img.Manifest, r.info(img))
}

// anew tells that an image is copied again from its beginning, and why.
func (r *Run) anew(img target.Image, why string) {
	r.opts.Log.Warn("image is copied anew", "run", r.Plan.ID, "disk", img.Key, "why", why)
	r.tell(plan.Event{Kind: plan.DiskAnew, Disk: img.Key, Message: why})
}

// info is the identity a manifest is bound to.
func (r *Run) info(img target.Image) manifest.Info {
	return manifest.Info{
		Disk: fmt.Sprint(img.Key), Size: img.Size,
		Source: fmt.Sprintf("%s %s %s %d", r.Plan.ID, r.Plan.VM.Ref, r.Plan.VM.InstanceUUID, img.Key),
	}
}
