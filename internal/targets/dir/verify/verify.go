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

// Image is the result for one image.
type Image struct {
	File string `json:"file"` // name without folder
	manifest.Report
	Audit  []string         `json:"audit,omitempty"`  // names of the audit files that were written
	Reread *manifest.Reread `json:"reread,omitempty"` // how much of the source was compared when the image was published
	// reason why the content may differ since publication; empty if it is unchanged
	Changed string `json:"changed,omitempty"`
}

// changedSince returns fault.Changed for an image that was written to after it was published.
func changedSince(path, why string) error {
	return fault.New(fault.Changed, "%s changed since it was published, as expected after a start: %s", path, why).
		WithHint("no action is needed if the VM was started; otherwise another program wrote to the image: restore it from a backup")
}

// Options tune Folder.
type Options struct {
	MD5   bool                                    // computes MD5 in addition to SHA-256
	Meter func(key int32) func(manifest.Progress) // returns the progress function for the disk with a device key
}

// Folder verifies all images of a published VM, one after the other because they share a medium. It
// continues after a bad image. In the joined error, corrupt images precede changed ones, because the
// first kind determines the exit code.
func Folder(ctx context.Context, p *dir.Published, o Options) (found []Image, err error) {
	target, err := dir.New(filepath.Dir(filepath.Clean(p.Folder)), dir.Options{})
	if err != nil {
		return nil, err
	}
	v := &verifier{p, target, o}
	return v.verifyAll(ctx)
}

// verifier verifies the images of one folder.
type verifier struct {
	published *dir.Published // the VM
	target    *dir.Target    // opens the images
	opts      Options        // options of Folder
}

// verifyAll implements Folder. Images whose verification did not begin are not in found.
func (v *verifier) verifyAll(ctx context.Context) (found []Image, err error) {
	var bad, changed error
	for i, img := range v.published.Images() {
		one, err := v.verifyImage(ctx, img)
		if ctx.Err() != nil {
			return found, errors.Join(bad, changed, err)
		}
		if err != nil {
			err = v.explainFailure(i, &one, err)
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

// explainFailure distinguishes an image that was written to after it was published, as by its VM, from
// a corrupt
// one. It sets one.Changed. No remedy recommends another copy of the disk, which would overwrite the
// VM's data.
func (v *verifier) explainFailure(i int, one *Image, err error) error {
	img := v.published.Record.Images[i]
	switch kind := fault.KindOf(err); kind {
	case fault.Corrupt, fault.Conflict, fault.Unsupported: // other bytes, another size, or a qcow2 that QEMU changed
	default:
		return err
	}
	path := v.published.Images()[i].Path
	one.Changed = v.published.Record.WrittenSince(v.published.Folder, img)
	if one.Changed != "" {
		return changedSince(path, one.Changed)
	}
	if fault.Is(err, fault.Corrupt) {
		return fault.New(fault.Corrupt, "%w", err).
			WithHint("nothing wrote to %s since it was published: check its storage for errors (dmesg, smartctl). If the VM was never started, restore the image from a backup, or migrate the VM again to another folder", path)
	}
	return err
}

// verifyImage compares an image with its manifest, and the manifest with vm.json. It then writes the
// audit files. If the
// root hash of the manifest differs from vm.json, the error is fault.Corrupt.
func (v *verifier) verifyImage(ctx context.Context, img targets.Image) (_ Image, err error) {
	s, err := manifest.Load(img.Manifest)
	if err != nil {
		return Image{}, withRestoreHint(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if s.Root().String() != img.Root {
		return Image{}, fault.New(fault.Corrupt, "manifest %s has the root hash %v, but vm.json has %s", img.Manifest, s.Root(), img.Root).
			WithHint("one of the two files was changed after the migration: restore both from a backup")
	}
	src, err := v.target.Read(ctx, img)
	if err != nil {
		return Image{}, withRestoreHint(err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	found := Image{File: filepath.Base(img.Path)}
	found.Report, err = manifest.Verify(ctx, src, s, manifest.VerifyOptions{MD5: v.opts.MD5, Progress: v.opts.Meter(img.Key)})
	if err != nil {
		return found, fmt.Errorf("%s: %w", img.Path, err)
	}
	found.Audit, err = v.writeAudit(img, found.Report)
	return found, err
}

// withRestoreHint gives the error of a missing or damaged published file a suitable remedy. The error's
// own remedy
// is for an unfinished copy and does not apply.
func withRestoreHint(err error) error {
	kind := fault.KindOf(err)
	switch kind {
	case fault.Conflict: // the sizes of file and disk differ
		kind = fault.Corrupt
	case fault.NotFound, fault.Corrupt:
	default:
		return err
	}
	return fault.New(kind, "%w", err).WithHint("restore the file from a backup, or migrate the VM again to another folder")
}

// writeAudit writes the audit files of the report's sums unless they exist, and returns the names of the
// new ones. A converted qcow2 image has none, because no file has its sums.
func (v *verifier) writeAudit(img targets.Image, r manifest.Report) (written []string, err error) {
	if img.Copied != "" && img.Format != targets.Raw {
		return nil, nil
	}
	for ext, sum := range map[string]string{".sha256": r.SHA256, ".md5": r.MD5} {
		if sum == "" {
			continue
		}
		if _, err := os.Lstat(img.Path + ext); errors.Is(err, fs.ErrNotExist) {
			written = append(written, filepath.Base(img.Path)+ext)
		}
	}
	if len(written) == 0 {
		return nil, nil
	}
	if err := manifest.WriteAudit(img.Path, v.auditName(img), r); err != nil {
		return nil, fault.New(fault.KindOf(err), "%w", err).
			WithHint("the image is correct, but its sums could not be written: make the folder writable")
	}
	return written, nil
}

// auditName returns the name of the file with these sums: the image if it is raw, else the flat file on
// the ESXi
// host.
func (v *verifier) auditName(img targets.Image) string {
	d, ok := v.published.Record.Source.Disk(img.Key)
	if img.Format == targets.Raw || !ok {
		return filepath.Base(img.Path)
	}
	file := path.Base(d.Base.File)
	return strings.TrimSuffix(file, path.Ext(file)) + "-flat.vmdk"
}

// File verifies an image that decamp convert wrote against the manifest next to it. It writes nothing.
// A corrupt image that was modified after the manifest was written is fault.Changed.
func File(ctx context.Context, path string, o manifest.VerifyOptions) (found Image, err error) {
	found = Image{File: filepath.Base(path)}
	found.Report, err = readBack(ctx, path, o)
	made, statErr := os.Stat(path + ".manifest")
	if found.Chunks > 0 && statErr == nil && fault.Is(err, fault.Corrupt) { // a guest changes content, and not the size
		if found.Changed = dir.WrittenSince(path, 0, made.ModTime()); found.Changed != "" {
			return found, changedSince(path, found.Changed)
		}
		err = fault.New(fault.Corrupt, "%w", err).
			WithHint("nothing wrote to the image since it was created: check its storage for errors (dmesg, smartctl), then remove it and convert again")
	}
	return found, err
}

// readBack compares the image at path with its manifest.
func readBack(ctx context.Context, path string, o manifest.VerifyOptions) (_ manifest.Report, err error) {
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
	return manifest.Verify(ctx, src, s, o)
}

// formatOf returns the format of an image that decamp convert wrote. The image of a disk of size bytes
// is raw if it
// has that length, whatever the guest wrote to its first sector; a qcow2 image is longer.
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
		WithHint("restore the file from a backup, or convert the disk again")
}
