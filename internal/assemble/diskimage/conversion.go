// Package diskimage converts one disk, in files of any format or on a stream, into one image with its
// manifest, for decamp convert.
package diskimage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
)

// Conversion is the conversion of one disk.
type Conversion struct {
	In       *Input       // the disk
	Path     string       // path of the disk, as the user typed it
	Out      string       // path of the image
	Format   image.Format // format of the image
	Replace  bool         // replace an existing image
	NoVerify bool         // do not read the image back
	Sums     bool         // also compute SHA-256 and MD5

	Shown    func(journal.Event)     // shows events
	NewMeter func(step string) Meter // returns a meter for a step that starts now
}

// Meter shows the progress of one step.
type Meter interface {
	ShowCopy(blockcopy.Progress)
	ShowVerify(manifest.Progress)
}

// Result is the result of a conversion.
type Result struct {
	Out      string           `json:"out"`                // path of the image
	Format   image.Format     `json:"format"`             // format of the image
	Manifest string           `json:"manifest"`           // path of the manifest
	Size     int64            `json:"size"`               // size of the disk in bytes
	Root     manifest.Hash    `json:"root"`               // root hash of the image
	Copied   blockcopy.Result `json:"copied"`             // copied by this attempt
	Verified *manifest.Report `json:"verified,omitempty"` // result of the verification; nil with NoVerify
	Warnings []string         `json:"warnings"`           // warnings about the input; not nil
}

// Run copies the disk, verifies the image and publishes it under its name. An interrupted conversion
// continues with the next Run, unless the disk is a stream.
func (c Conversion) Run(ctx context.Context) (made Result, err error) {
	if isSameFile(c.Path, c.Out) {
		return made, fault.New(fault.Invalid, "%s is the input disk", c.Out).WithHint("choose another name for the image")
	}
	if c.Out, err = filepath.Abs(c.Out); err != nil {
		return made, err
	}
	made, err = c.convertDisk(ctx)
	if fault.Is(err, fault.Canceled) && c.In.again != nil {
		return made, fault.New(fault.Canceled, "convert %s: %w", c.Path, err).WithHint("run the same command again: it continues")
	}
	if err != nil {
		return made, fmt.Errorf("convert %s: %w", c.Path, err)
	}
	return made, nil
}

// isSameFile reports whether both names belong to one existing file.
func isSameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// convertDisk is Run without the path of the disk in its errors.
func (c Conversion) convertDisk(ctx context.Context) (made Result, err error) {
	final := image.File{Path: c.Out, Format: c.Format, Size: c.In.Size}
	made = Result{Out: final.Path, Format: final.Format, Manifest: final.Path + ".manifest", Size: final.Size}
	defer func() { made.Warnings = append([]string{}, c.In.warnings()...) }()
	draft := image.Draft{Final: final, Replace: c.Replace}
	if err := draft.Prepare(); err != nil {
		return made, err
	}
	growing := draft.File()
	job := image.Job{
		Opener: growing, Path: growing.Path, Manifest: draft.Manifest(),
		Info:   manifest.Info{Disk: filepath.Base(c.Out), Size: c.In.Size, Source: c.In.identity},
		Source: c.In.again,
		Anew:   func(why string) { c.addNote("writing %s again: %s", growing.Path, why) },
		GiveUp: fmt.Sprintf("run: rm %s %s; then run the same command again", fault.Quote(growing.Path), fault.Quote(draft.Manifest())),
		Seed:   1,
	}
	made.Root, _, err = job.Fill(ctx, func(ctx context.Context, into *image.Copying) (err error) {
		c.addNote("writing %s %s", c.Out, into.From())
		made.Copied, err = c.In.copy(ctx, into.Target, blockcopy.Options{Manifest: into.Log, Progress: c.NewMeter("copy").ShowCopy})
		return err
	})
	if err != nil {
		return made, err
	}
	c.Shown(journal.Event{Kind: journal.StepDone, Step: "copy"})
	if !c.NoVerify {
		report, err := job.Verify(ctx, manifest.VerifyOptions{NoSums: !c.Sums, MD5: true, Progress: c.NewMeter("verify").ShowVerify})
		if err != nil {
			return made, err
		}
		made.Verified = &report
	}
	return made, draft.Publish()
}

// addNote shows a message.
func (c Conversion) addNote(format string, args ...any) {
	c.Shown(journal.Event{Kind: journal.Noted, Message: fmt.Sprintf(format, args...)})
}
