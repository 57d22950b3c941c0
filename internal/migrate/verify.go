package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/targets"
)

// verifyStep reads every image back from the medium and compares all of it with its manifest. Chunks
// that differ are removed from the manifest, and the step fails. The next attempt starts with this step
// and copies only these chunks first.
type verifyStep struct{}

// Name implements Step.
func (verifyStep) Name() string { return StepVerify }

// Run implements Step. The trial boot precedes the comparison, which may take hours.
func (verifyStep) Run(ctx context.Context, r *Run) error {
	if err := repairImages(ctx, r); err != nil {
		return err
	}
	if err := tryBoot(ctx, r); err != nil { // before all of it is read: that may take hours
		return err
	}
	r.Record.Facts.Verified = make([]Verified, len(r.Record.Facts.Images))
	stages := make([]journal.StageTime, len(r.Record.Facts.Images))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.Options.Disks)
	for i, img := range r.Record.Facts.Images {
		g.Go(func() (err error) {
			r.Record.Facts.Verified[i], stages[i], err = newVerifier(r).verifyImage(ctx, img)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, s := range stages {
		r.Record.AddStage(s)
	}
	return nil
}

// Undo does nothing: copyStep.Undo removes the audit files with the images.
func (verifyStep) Undo(context.Context, *Run) error { return nil }

// repairImages copies the chunks that an earlier verify removed, and examines and converts the images
// again. Complete images are left unchanged.
func repairImages(ctx context.Context, r *Run) error {
	whole := true
	for _, img := range r.Record.Facts.Images {
		whole = whole && newOverlays(r).isUnconverted(ctx, img)
	}
	if whole {
		for _, img := range r.Record.Facts.Images {
			notifySettled(r, img.Key) // copy may have been done by an earlier process
		}
		return nil
	}
	for _, img := range r.Record.Facts.Images { // data that is written now is not verified yet
		if err := image.RemoveVerifiedRecord(img.Manifest); err != nil {
			return err
		}
	}
	for _, s := range []Step{copyStep{}, detectStep{}, convertStep{}} {
		if err := s.Run(ctx, r); err != nil {
			return fmt.Errorf("%s again: %w", s.Name(), err)
		}
	}
	return nil
}

// A verifier compares the images of a run with their manifests, and with the source.
type verifier struct {
	record *Record      // results and events of the run
	images *Images      // images to read back
	source *sourceCheck // comparison with the source
	permit Permit       // whether whole disks must be hashed
	opts   *Options     // options of the Migrator
}

// newVerifier returns the verifier of a run.
func newVerifier(r *Run) *verifier {
	source := &sourceCheck{record: r.Record, vm: r.VM, images: r.Images, retry: r.Retry, rig: r.Env, permit: r.Permit}
	return &verifier{record: r.Record, images: r.Images, source: source, permit: r.Permit, opts: r.Options}
}

// verifyImage compares one image with its manifest and the source, and returns the time as a stage.
func (r *verifier) verifyImage(ctx context.Context, img targets.Image) (Verified, journal.StageTime, error) {
	began := r.opts.Now()
	v, err := r.readBoth(ctx, img)
	if err != nil {
		err = r.source.invalidateIfDiffers(img, err)
	}
	stage := journal.StageTime{Name: fmt.Sprintf("verify %d", img.Key), Bytes: img.Size, Read: v.Read, Elapsed: r.opts.Now().Sub(began)}
	return v, stage, err
}

// readBack compares the image with its manifest and writes the audit file. Wrong chunks are removed
// from the manifest, and readBack returns an error.
func (r *verifier) readBack(ctx context.Context, img targets.Image) (Verified, error) {
	p, err := r.provenBefore(img)
	if err != nil {
		return Verified{}, err
	}
	report, err := r.images.Job(img).VerifyRest(ctx, manifest.VerifyOptions{MD5: r.permit.SourceHash, Progress: r.record.Meter(img.Key).Verifying}, p)
	for _, b := range report.Bad {
		r.record.Report(journal.Event{Kind: journal.ChunkBad, Disk: img.Key, Message: b.String()})
	}
	if err != nil {
		return Verified{}, errors.Join(err, image.RemoveVerifiedRecord(img.Manifest)) // the storage is not reliable
	}
	v := Verified{Key: img.Key, Root: report.Root.String(), Medium: report.Medium, VerifiedBefore: report.VerifiedBefore, Read: report.Read()}
	if report.SHA256 == "" { // not all of it was read
		return v, nil
	}
	v.SHA256, v.MD5 = report.SHA256, report.MD5
	if err := os.Remove(img.Path + ".md5"); err != nil && !errors.Is(err, fs.ErrNotExist) { // of an earlier attempt
		return Verified{}, fmt.Errorf("remove an outdated audit file: %w", err)
	}
	if err := manifest.WriteAudit(img.Path, r.auditName(img), report); err != nil {
		return Verified{}, err
	}
	return v, nil
}

// provenBefore returns the chunks that the rounds of a warm run read back after they were written. They
// are not read again, because the VM is off meanwhile. It returns nil for a cold run, and if the hashes
// of the whole disk are requested.
func (v *verifier) provenBefore(img targets.Image) (*image.VerifiedRecord, error) {
	if v.record.Facts.Warm == nil || v.permit.SourceHash {
		return nil, nil
	}
	return image.OpenVerifiedRecord(img.Manifest, v.record.Info(img))
}

// auditName returns the file name in the audit lines: the published image if it is byte-identical with
// the disk, else the flat file on the host with the same sum. The sums are those of the copy, also if
// the image is converted later.
func (v *verifier) auditName(img targets.Image) string {
	changes := img.Format != targets.Raw || v.record.Facts.Conversion.forDisk(img.Key) != nil
	if d, ok := v.record.Facts.VM.Disk(img.Key); ok && changes {
		file := path.Base(d.Path.File)
		return file[:len(file)-len(path.Ext(file))] + "-flat.vmdk"
	}
	return filepath.Base(img.Final)
}

// readBoth reads an image back and compares it with its manifest. Meanwhile it compares a sample of the
// source with the manifest, and makes the host hash the whole disk if that is requested.
func (r *verifier) readBoth(ctx context.Context, img targets.Image) (v Verified, err error) {
	var sum *SourceSum
	var reread manifest.Reread
	readBack := make(chan struct{}) // closed when the image was read back
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		defer close(readBack)
		v, err = r.readBack(ctx, img)
		return err
	})
	g.Go(func() (err error) {
		reread, err = r.source.rereadSample(ctx, img) // before sum: a disk that is read over NFC cannot be opened on its host
		if fault.Is(err, fault.Conflict) {
			<-readBack // a bad chunk leaves the manifest unsealed: report the chunk, not the manifest
		}
		if err != nil {
			return err
		}
		sum, err = r.source.hashOnHost(ctx, img)
		return err
	})
	if err := g.Wait(); err != nil {
		return v, err
	}
	v.Reread = &reread
	if sum == nil {
		return v, nil
	}
	v.Source = sum
	return v, sum.compareWith(img.Key, v)
}
