package image

import (
	"context"
	"errors"

	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/qcow2"
)

// Grow enlarges an unfinished image to Size bytes. It does nothing if there is no image. An image of a
// disk of less than least bytes, or of more than Size, is fault.Conflict. A finished qcow2 image
// becomes unfinished.
func (f File) Grow(ctx context.Context, least int64) error {
	left, err := f.hasUnfinished()
	if err != nil || !left {
		return err
	}
	switch f.Format {
	case Raw:
		return f.growRaw(ctx, least)
	case QCOW2:
		return qcow2.Grow(ctx, f.Path, least, f.Size)
	}
	return f.unknownFormat()
}

// growRaw is Grow for a raw image, which must exist.
func (f File) growRaw(ctx context.Context, least int64) error {
	t, err := rawfile.Open(f.Path, rawfile.Options{})
	if err != nil {
		return err
	}
	switch had := t.Size(); {
	case had < least || had > f.Size:
		err = fault.New(fault.Conflict, "image %s has %d bytes, its disk had %d and has %d", f.Path, had, least, f.Size).
			WithHint("another program changed it: move it away, and run the same command again")
	case had < f.Size:
		err = t.Grow(ctx, f.Size)
	}
	return errors.Join(err, t.Close())
}

// growToDisk enlarges an image and its manifest if their disk has grown. The image is first, so that
// the manifest never lists chunks outside the image. An unusable manifest is created again later,
// whatever the image contains. Without Job.Grow it does nothing.
func (j Job) growToDisk(ctx context.Context) error {
	if j.Grow == nil {
		return nil
	}
	was, err := manifest.ReadInfo(j.Manifest)
	larger := was
	larger.Size = j.Info.Size
	switch {
	case err == nil && was == j.Info:
		return nil
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Corrupt):
		return j.Grow(ctx, 0)
	case err != nil:
		return err
	case larger != j.Info || was.Size > j.Info.Size:
		return j.Grow(ctx, 0)
	}
	if err := j.Grow(ctx, was.Size); err != nil {
		return err
	}
	return j.growManifest(ctx, was)
}

// growManifest enlarges the manifest and the record of verified chunks. was describes the disk before
// it grew.
func (j Job) growManifest(ctx context.Context, was manifest.Info) (err error) {
	proven, err := OpenVerifiedRecord(j.Manifest, was)
	if err != nil {
		return err
	}
	log, err := manifest.Open(j.Manifest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := log.Grow(ctx, j.Info.Size); err != nil {
		return err
	}
	return proven.growTo(j.Info)
}

// growTo keeps the verified chunks of a disk that has grown. It drops a last chunk that was short and
// is longer now. After a crash in between no chunk is verified, because the record belongs to another
// disk.
func (p *VerifiedRecord) growTo(info manifest.Info) error {
	if p.gone {
		return nil
	}
	larger, err := OpenVerifiedRecord(p.manifestPath(), info)
	if err != nil {
		return err
	}
	larger.base = p.base // the data stays where it is
	for c := range p.info.Chunks() {
		if p.Has(c) && p.info.Chunk(c) == info.Chunk(c) {
			larger.copyVerified(c, p)
		}
	}
	return larger.Save()
}
