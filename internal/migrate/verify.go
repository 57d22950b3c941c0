package migrate

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
)

// Verified is what verify proved of one image.
type Verified struct {
	Key    int32            `json:"key"`
	Root   string           `json:"root"`
	SHA256 string           `json:"sha256"` // of the logical disk; empty if not all of it was read now
	MD5    string           `json:"md5"`
	Proven int64            `json:"proven,omitempty"` // bytes that were read back by earlier rounds, and not now
	Read   int64            `json:"read,omitempty"`   // bytes that were read back now; the rest are holes, or Proven
	Medium string           `json:"medium"`           // where the bytes were read from
	Reread *manifest.Reread `json:"reread,omitempty"` // what was read from the source again; nil if verified by an older decamp
	Source *SourceSum       `json:"source,omitempty"` // what the host says the disk's hash is
}

// verifyStep reads every image back from the medium and compares all of it with its
// manifest. Chunks that differ are no longer safe: the step fails, and the next attempt,
// which begins here again, copies just these first.
type verifyStep struct{}

func (verifyStep) Name() string { return StepVerify }

func (verifyStep) Run(ctx context.Context, r *Run) error {
	if err := mend(ctx, r); err != nil {
		return err
	}
	if err := tryBoot(ctx, r); err != nil { // before all of it is read: that may take hours
		return err
	}
	r.Record.Facts.Verified = make([]Verified, len(r.Record.Facts.Images))
	stages := make([]plan.Stage, len(r.Record.Facts.Images))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.Options.Disks)
	for i, img := range r.Record.Facts.Images {
		g.Go(func() (err error) {
			r.Record.Facts.Verified[i], stages[i], err = r.verifier().verify(ctx, img)
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

// Undo: the audit files go with the images.
func (verifyStep) Undo(context.Context, *Run) error { return nil }

// mend copies what an earlier verify found bad, and looks into the images again.
func mend(ctx context.Context, r *Run) error {
	whole := true
	for _, img := range r.Record.Facts.Images {
		whole = whole && r.overlays().unconverted(ctx, img)
	}
	if whole {
		for _, img := range r.Record.Facts.Images {
			settle(r, img.Key) // copy may have been done by an earlier process
		}
		return nil
	}
	for _, img := range r.Record.Facts.Images { // what is written now is proven by nobody yet
		if err := image.ForgetProven(img.Manifest); err != nil {
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

// sealed reports whether the image's manifest is complete and the one that copy sealed.
func sealed(img targets.Image) bool {
	s, err := manifest.Load(img.Manifest)
	if err != nil {
		return false
	}
	defer s.Close()
	return s.Root().String() == img.Root
}

// A verifier proves the images of a run: against their manifests, and against the source.
type verifier struct {
	record *Record
	vm     *SourceVM
	images *Images
	retry  *Retrier
	rig    *Rig
	permit Permit
	opts   *Options
}

func (r *verifier) verify(ctx context.Context, img targets.Image) (Verified, plan.Stage, error) {
	began := r.opts.Now()
	v, err := r.readBoth(ctx, img)
	if err != nil {
		err = r.distrust(img, err)
	}
	stage := plan.Stage{Name: fmt.Sprintf("verify %d", img.Key), Bytes: img.Size, Moved: v.Read, Elapsed: r.opts.Now().Sub(began)}
	return v, stage, err
}

// readBack compares the image with its manifest and writes the audit files.
func (r *verifier) readBack(ctx context.Context, img targets.Image) (Verified, error) {
	p, err := r.provenBefore(img)
	if err != nil {
		return Verified{}, err
	}
	report, err := r.images.Job(img).VerifyRest(ctx, manifest.VerifyOptions{Progress: r.record.Meter(img.Key).Verifying}, p)
	for _, b := range report.Bad {
		r.record.Tell(plan.Event{Kind: plan.ChunkBad, Disk: img.Key, Message: b.String()})
	}
	if err != nil {
		return Verified{}, errors.Join(err, image.ForgetProven(img.Manifest)) // that storage is not to be trusted
	}
	v := Verified{Key: img.Key, Root: report.Root.String(), Medium: report.Medium, Proven: report.Proven, Read: report.Read()}
	if report.SHA256 == "" { // not all of it was read
		return v, nil
	}
	v.SHA256, v.MD5 = report.SHA256, report.MD5
	if err := manifest.WriteAudit(img.Path, r.auditName(img), report); err != nil {
		return Verified{}, err
	}
	return v, nil
}

// provenBefore is what the rounds of a warm run read back since it was written, and need not be read
// now: the VM is off, and waits. Nil where the sums of the whole disk are asked for.
func (v *verifier) provenBefore(img targets.Image) (*image.Proven, error) {
	if v.record.Facts.Warm == nil || v.permit.SourceHash {
		return nil, nil
	}
	return image.OpenProven(img.Manifest, v.record.Info(img))
}

// auditName is the file the audit lines name: the published image where it is byte for
// byte the disk, else the flat file on the host that has the same sum. That is so, too, where the
// image is still to be converted: the sums are those of the copy.
func (v *verifier) auditName(img targets.Image) string {
	changes := img.Format != targets.Raw || v.record.Facts.Conversion.of(img.Key) != nil
	if d, ok := v.record.Facts.VM.Disk(img.Key); ok && changes {
		file := path.Base(d.Path.File)
		return file[:len(file)-len(path.Ext(file))] + "-flat.vmdk"
	}
	return filepath.Base(img.Final)
}
