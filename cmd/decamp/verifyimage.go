package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/manifest"
)

// verifyImage compares what decamp convert wrote with the manifest beside it. Nothing is
// written: the sums are shown.
func (a *app) verifyImage(ctx context.Context, o verifyOptions, path string) error {
	if o.spot.asked() {
		return fault.New(fault.Invalid, "%s is a converted image: --spot reads the source of a migrated VM", path).
			WithHint("leave --spot and --source out")
	}
	m := newMeter(a.newProgress(nil), "verify")
	found := verified{File: filepath.Base(path)}
	var err error
	found.Report, err = verifyFile(ctx, path, m.verifying)
	m.shown.close()
	if found.Chunks == 0 {
		return err
	}
	return errors.Join(err, a.writeVerified(path, []verified{found}, err))
}

func verifyFile(ctx context.Context, path string, progress func(manifest.Progress)) (_ manifest.Report, err error) {
	s, err := manifest.Load(path + ".manifest")
	if err != nil {
		return manifest.Report{}, err
	}
	defer closing(&err, s.Close)
	format, err := formatOf(path, s.Info().Size)
	if err != nil {
		return manifest.Report{}, err
	}
	src, err := image.File{Path: path, Format: format, Size: s.Info().Size}.Read(ctx)
	if err != nil {
		return manifest.Report{}, err
	}
	defer closing(&err, src.Close)
	return manifest.Verify(ctx, src, s, manifest.VerifyOptions{Progress: progress})
}

// formatOf tells a raw image, which is as long as its disk, from a qcow2 image, which is
// not. The content says nothing: a guest may have made its disk begin as it likes.
func formatOf(path string, size int64) (image.Format, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Size() == size {
		return image.Raw, nil
	}
	return image.QCOW2, nil
}
