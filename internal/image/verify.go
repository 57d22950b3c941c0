package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/qcow2"
)

// maxBad is the largest number of bad chunks that a report lists. If there are more, the whole image is
// copied again.
const maxBad = 4096

// Verify reads the finished image back and compares all of it with its manifest. Chunks that differ are
// removed from the manifest: Verify fails with fault.Corrupt, and the next Fill copies just these. The
// report names them as well.
//
// Tables are also read back and compared with the written ones: an error that no chunk shows, such as a
// cluster that is not counted, would lead to overwritten data later.
func (j Job) Verify(ctx context.Context, o manifest.VerifyOptions) (manifest.Report, error) {
	return j.VerifyRest(ctx, o, nil)
}

// VerifyRest is Verify without the chunks that are verified in p: they were read back after they were
// written, and have the same positions in the finished image. p may be nil.
func (j Job) VerifyRest(ctx context.Context, o manifest.VerifyOptions, p *VerifiedRecord) (manifest.Report, error) {
	o.MaxBad = maxBad
	report, err := j.compareImage(ctx, o, p)
	if report.BadChunks > 0 {
		err = j.dropBadChunks(report, err)
	}
	return report, err
}

// compareImage is VerifyRest without the removal of bad chunks.
func (j Job) compareImage(ctx context.Context, o manifest.VerifyOptions, p *VerifiedRecord) (_ manifest.Report, err error) {
	s, err := manifest.Load(j.Manifest)
	if err != nil {
		return manifest.Report{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	src, err := j.Opener.Read(ctx)
	if err != nil {
		return manifest.Report{}, j.reopenDamaged(fmt.Errorf("open image to verify it: %w", err))
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if o.Verified, err = j.stillVerified(ctx, src, p); err != nil {
		return manifest.Report{}, j.reopenDamaged(err)
	}
	return manifest.Verify(ctx, src, s, o)
}

// stillVerified returns a function that reports whether a chunk of the finished image is still
// verified; nil if none is.
func (j Job) stillVerified(ctx context.Context, src disk.Source, p *VerifiedRecord) (func(chunk int64) bool, error) {
	m, err := checkTables(ctx, src, j.Info.Size)
	if err != nil || p == nil {
		return nil, err
	}
	if p.keepMapped(m); p.Count() == 0 {
		return nil, nil
	}
	return p.Has, nil
}

// reopenDamaged prepares a qcow2 image with damaged tables for the next Fill, which writes the tables
// again. It makes the image unfinished and the manifest open. A crash in between leaves an unfinished
// image beside a sealed manifest; that counts as damaged as well, and is handled here again. Files that
// are not qcow2 images of decamp are not changed. found is the error, which is returned with its
// remedy.
func (j Job) reopenDamaged(found error) (err error) {
	if !fault.Is(found, fault.Corrupt) || qcow2.Unfinish(j.Path, j.Info.Size) != nil {
		return found
	}
	log, err := manifest.Open(j.Manifest)
	if err != nil {
		return errors.Join(found, err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := log.Drop(0, 1); err != nil {
		return errors.Join(found, err)
	}
	return fault.New(fault.Corrupt, "%w", found).
		WithHint("run the same command again: it writes the tables again; if that fails again, check the target's storage (dmesg, smartctl)")
}

// dropBadChunks removes the bad chunks of report from the manifest, and returns found with its remedy.
func (j Job) dropBadChunks(report manifest.Report, found error) (err error) {
	log, err := manifest.Open(j.Manifest)
	if err != nil {
		return errors.Join(found, err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := dropReported(log, report); err != nil {
		return errors.Join(found, err)
	}
	return fault.New(fault.Corrupt, "%w", found).
		WithHint("run the same command again: it copies the %d bad chunks again; if that fails again, check the target's storage (dmesg, smartctl)", report.BadChunks)
}

// dropReported removes the bad chunks from the manifest. If the report does not list all of them, it
// removes all chunks.
func dropReported(log *manifest.Log, report manifest.Report) error {
	if report.BadChunks > int64(len(report.Bad)) {
		return log.Drop(0, log.Chunks())
	}
	for _, b := range report.Bad {
		if err := log.Drop(b.Chunk(), 1); err != nil {
			return err
		}
	}
	return nil
}
