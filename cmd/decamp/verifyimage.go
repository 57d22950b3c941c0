package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/internal/disk/signature"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/targets/dir"
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
	made, statErr := os.Stat(path + ".manifest")
	if found.Chunks > 0 && statErr == nil && fault.Is(err, fault.Corrupt) { // a guest changes content, and not the size
		if found.Changed = dir.WrittenSince(path, 0, made.ModTime()); found.Changed != "" {
			err = changedSince(path, found.Changed)
		} else {
			err = fault.New(fault.Corrupt, "%w", err).
				WithHint("nothing wrote to the image since it was made: look for errors of its storage (dmesg, smartctl), then remove it and convert again")
		}
	}
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

// formatOf returns the format of an image that decamp converted. A raw image is as long as its
// disk, whatever the guest has written to its beginning; a qcow2 image is longer.
func formatOf(path string, size int64) (image.Format, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Size() == size {
		return image.Raw, nil
	}
	head := make([]byte, signature.HeadSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return "", err
	}
	if signature.Identify(head[:n], nil) == signature.QCOW2 {
		return image.QCOW2, nil
	}
	return "", fault.New(fault.Corrupt, "%s has %d bytes, the disk in its manifest has %d: it is neither its raw image nor a qcow2 image", path, info.Size(), size).
		WithHint("take the file from a backup, or convert the disk again")
}
