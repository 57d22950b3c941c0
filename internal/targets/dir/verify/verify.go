// Package verify reads published and converted images back from the medium and compares them with their manifests.
package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/decamp/decamp/internal/disk/signature"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
)

// Image is what was found of one image.
type Image struct {
	File string `json:"file"`
	manifest.Report
	Audit   []string         `json:"audit,omitempty"`   // files written
	Reread  *manifest.Reread `json:"reread,omitempty"`  // what was compared with the source
	Changed string           `json:"changed,omitempty"` // why it is another image since it was published
}

// changedSince is the error of an image that was written to since it was published.
func changedSince(path, why string) error {
	return fault.New(fault.Changed, "%s changed since it was published, as expected after a start: %s", path, why).
		WithHint("nothing is to be done if the VM was started; if it never was, another program wrote to the image: take it from a backup")
}

// Meter returns the function that receives the progress of an image, by the key of its disk.
type Meter func(key int32) func(manifest.Progress)

// Folder verifies every image of a published VM, one after the other: they are on one medium. It goes on after
// a bad one. In the error what is corrupt comes before what changed: it decides the exit code.
func Folder(ctx context.Context, p *dir.Published, meter Meter) (found []Image, err error) {
	target, err := dir.New(filepath.Dir(filepath.Clean(p.Folder)), dir.Options{})
	if err != nil {
		return nil, err
	}
	v := &verifier{p, target, meter}
	return v.all(ctx)
}

// verifier verifies the images of one folder.
type verifier struct {
	p      *dir.Published
	target *dir.Target
	meter  Meter
}

func (v *verifier) all(ctx context.Context) (found []Image, err error) {
	var bad, changed error
	for i, img := range v.p.Images() {
		one, err := v.one(ctx, img)
		if ctx.Err() != nil {
			return found, errors.Join(bad, changed, err)
		}
		if err != nil {
			err = v.explain(i, &one, err)
		}
		if fault.Is(err, fault.Changed) {
			changed = errors.Join(changed, err)
		} else {
			bad = errors.Join(bad, err)
		}
		if one.Chunks > 0 {
			found = append(found, one)
		}
	}
	return found, errors.Join(bad, changed)
}

// explain tells an image that was written to since it was published, as by a VM that was started, from
// one that is corrupt. Neither remedy is to copy the disk again: that would overwrite what the VM wrote.
func (v *verifier) explain(i int, one *Image, err error) error {
	img := v.p.Record.Images[i]
	switch kind := fault.KindOf(err); kind {
	case fault.Corrupt, fault.Conflict, fault.Unsupported: // other bytes, another size, or a qcow2 that QEMU changed
	default:
		return err
	}
	path := v.p.Images()[i].Path
	one.Changed = v.p.Record.WrittenSince(v.p.Folder, img)
	if one.Changed != "" {
		return changedSince(path, one.Changed)
	}
	if fault.Is(err, fault.Corrupt) {
		return fault.New(fault.Corrupt, "%w", err).
			WithHint("%s was not written to since it was published: look for errors of its storage (dmesg, smartctl). If the VM was never started, take the image from a backup, or migrate the VM once more, to another folder", path)
	}
	return err
}

func (v *verifier) one(ctx context.Context, img targets.Image) (_ Image, err error) {
	s, err := manifest.Load(img.Manifest)
	if err != nil {
		return Image{}, unfit(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if s.Root().String() != img.Root {
		return Image{}, fault.New(fault.Corrupt, "manifest %s has the root %v, vm.json says %s", img.Manifest, s.Root(), img.Root).
			WithHint("one of the two was changed after the migration: take both from a backup")
	}
	src, err := v.target.Read(ctx, img)
	if err != nil {
		return Image{}, unfit(err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	found := Image{File: filepath.Base(img.Path)}
	found.Report, err = manifest.Verify(ctx, src, s, manifest.VerifyOptions{Progress: v.meter(img.Key)})
	if err != nil {
		return found, fmt.Errorf("%s: %w", img.Path, err)
	}
	found.Audit, err = v.audit(img, found.Report)
	return found, err
}

// unfit gives a published file that is gone or damaged the remedy that is left. Those of
// a copy that is under way, to give the same command again, lead nowhere here.
func unfit(err error) error {
	kind := fault.KindOf(err)
	switch kind {
	case fault.Conflict: // of another size than the disk
		kind = fault.Corrupt
	case fault.NotFound, fault.Corrupt:
	default:
		return err
	}
	return fault.New(kind, "%w", err).WithHint("take the file from a backup, or migrate the VM once more, to another folder")
}

// audit writes the audit files unless both are there. A converted qcow2 gets none: there is no file
// that has its sums.
func (v *verifier) audit(img targets.Image, r manifest.Report) (written []string, err error) {
	if img.Copied != "" && img.Format != targets.Raw {
		return nil, nil
	}
	for _, ext := range []string{".sha256", ".md5"} {
		if _, err := os.Lstat(img.Path + ext); errors.Is(err, fs.ErrNotExist) {
			written = append(written, filepath.Base(img.Path)+ext)
		}
	}
	if len(written) == 0 {
		return nil, nil
	}
	if err := manifest.WriteAudit(img.Path, v.auditName(img), r); err != nil {
		return nil, fault.New(fault.KindOf(err), "%w", err).
			WithHint("the image is what was copied; only its sums could not be written: make the folder writable")
	}
	return written, nil
}

// auditName is the file that the sums are of: the image where it is byte for byte the
// disk, else the flat file on the host.
func (v *verifier) auditName(img targets.Image) string {
	d, ok := v.p.Record.Source.Disk(img.Key)
	if img.Format == targets.Raw || !ok {
		return filepath.Base(img.Path)
	}
	file := path.Base(d.Base.File)
	return strings.TrimSuffix(file, path.Ext(file)) + "-flat.vmdk"
}

// File verifies an image that decamp convert wrote, by the manifest beside it. Nothing is written.
func File(ctx context.Context, path string, progress func(manifest.Progress)) (found Image, err error) {
	found = Image{File: filepath.Base(path)}
	found.Report, err = readBack(ctx, path, progress)
	made, statErr := os.Stat(path + ".manifest")
	if found.Chunks > 0 && statErr == nil && fault.Is(err, fault.Corrupt) { // a guest changes content, and not the size
		if found.Changed = dir.WrittenSince(path, 0, made.ModTime()); found.Changed != "" {
			return found, changedSince(path, found.Changed)
		}
		err = fault.New(fault.Corrupt, "%w", err).
			WithHint("nothing wrote to the image since it was made: look for errors of its storage (dmesg, smartctl), then remove it and convert again")
	}
	return found, err
}

func readBack(ctx context.Context, path string, progress func(manifest.Progress)) (_ manifest.Report, err error) {
	s, err := manifest.Load(path + ".manifest")
	if err != nil {
		return manifest.Report{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	format, err := formatOf(path, s.Info().Size)
	if err != nil {
		return manifest.Report{}, err
	}
	src, err := image.File{Path: path, Format: format, Size: s.Info().Size}.Read(ctx)
	if err != nil {
		return manifest.Report{}, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
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
