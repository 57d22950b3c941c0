package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// maxBad is how many bad chunks are named; with more, the whole image is copied again.
const maxBad = 4096

// Verify reads the finished image back and compares all of it with its manifest. Chunks
// that differ are no longer safe: Verify fails with fault.Corrupt, and the next Fill
// copies just these. The report names them also then.
func (j Job) Verify(ctx context.Context, o manifest.VerifyOptions) (manifest.Report, error) {
	o.MaxBad = maxBad
	report, err := j.compare(ctx, o)
	if report.BadChunks > 0 {
		err = j.distrust(report, err)
	}
	return report, err
}

func (j Job) compare(ctx context.Context, o manifest.VerifyOptions) (_ manifest.Report, err error) {
	s, err := manifest.Load(j.Manifest)
	if err != nil {
		return manifest.Report{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	src, err := j.Place.Read(ctx)
	if err != nil {
		return manifest.Report{}, fmt.Errorf("open image to verify it: %w", err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return manifest.Verify(ctx, src, s, o)
}

// distrust takes the bad chunks out of the manifest and says how they are mended.
func (j Job) distrust(report manifest.Report, found error) (err error) {
	log, err := manifest.Open(j.Manifest)
	if err != nil {
		return errors.Join(found, err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := drop(log, report); err != nil {
		return errors.Join(found, err)
	}
	return fault.New(fault.Corrupt, "%w", found).
		WithHint("run the same command again: it copies the %d bad chunks anew; if it happens again, look at the target's storage (dmesg, smartctl)", report.BadChunks)
}

func drop(log *manifest.Log, report manifest.Report) error {
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
