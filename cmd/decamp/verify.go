package main

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

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/disk/signature"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
)

const verifyHelp = `
Read the images of a migrated VM, or one converted image, back from the medium and compare
every MiB with the manifest that was made while they were copied.

FOLDER is what decamp migrate published; it holds a vm.json. IMAGE is what decamp convert
wrote; its manifest lies beside it. A bit that flipped is named: disk, offset, the hash
expected and the hash seen. The variables of a VM's EFI firmware are compared, too. Where
they are missing, the audit files NAME.sha256 and NAME.md5 are written; sha256sum -c takes
them, and md5sum on the host gives the same sum for the flat file. Nothing else in the
folder is touched.

A VM that was started has changed its images. verify reports that with exit code 11, and not
as corruption, if QEMU or another program holds the lock of a writer on an image, or if the
image was written to after it was published. Do not copy such a VM again: that would discard
what it wrote. To verify a copy, do so before its first start.

--spot also reads a sample of each disk from the source, named by --source, and compares it: the
first SIZE bytes, the last MiB and N random ones. It means something until either VM runs.
`

const verifyExamples = `
decamp verify /srv/vm/web01
decamp verify /srv/vm/web01 --json | tail -1
decamp verify /srv/vm/web01 --spot 100M,32 --source esxi://root@esx1
decamp verify web01.qcow2
`

// verifyOptions are the flags of decamp verify.
type verifyOptions struct {
	assemble.Login
	spot   spot
	source string
}

func newVerify(a *app) *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:     "verify FOLDER|IMAGE",
		Short:   "Prove the images of a migrated VM, or a converted one, again",
		Long:    text(verifyHelp),
		Example: text(verifyExamples),
		Args:    takes("FOLDER or IMAGE"),
		Annotations: exits(
			exit{fault.NotFound, "that is not the folder of a migrated VM, or an image is gone"},
			exit{fault.Denied, "files cannot be read; with --spot also: wrong password, certificate unknown or changed"},
			exit{fault.Unreachable, "with --spot: nobody answers at that address"},
			exit{fault.Conflict, "with --spot: the VM runs"},
			exit{fault.Corrupt, "an image is not what was copied, and nothing wrote to it since it was published"},
			exit{fault.Changed, "an image changed since it was published, as expected after a start"}),
		RunE: a.logged(func(cmd *cobra.Command, args []string) error {
			if o.spot.asked() != (o.source != "") {
				return badUsage(cmd, "--spot and --source need each other")
			}
			return a.verify(cmd.Context(), o, args[0])
		}),
	}
	f := cmd.Flags()
	f.Var(&o.spot, "spot", "read the first bytes, the last MiB and N random MiB of each disk from the source again, and compare (N: 64)")
	f.StringVar(&o.source, "source", "", "where the VM came from, for --spot: `URL` as in decamp ls")
	registerLogin(&o.Login, cmd)
	return cmd
}

// verified is what decamp verify found of one image.
type verified struct {
	File string `json:"file"`
	manifest.Report
	Audit   []string         `json:"audit,omitempty"`   // files written
	Reread  *manifest.Reread `json:"reread,omitempty"`  // what --spot compared
	Changed string           `json:"changed,omitempty"` // why it is another image since it was published
}

func (a *app) verify(ctx context.Context, o verifyOptions, folder string) (err error) {
	if info, err := os.Stat(folder); err == nil && info.Mode().IsRegular() {
		return a.verifyImage(ctx, o, folder)
	}
	p, err := openPublished(folder)
	if err != nil {
		return err
	}
	if err := p.here(); err != nil {
		return err
	}
	if o.spot.asked() && p.converted() {
		return fault.New(fault.Invalid, "%s was converted: its images differ from the source where vm.json says so", folder).
			WithHint("leave --spot and --source out; the root hash of the copy is in vm.json (copied)")
	}
	v := &verifier{p: p, shown: a.newProgress(nil)}
	found, err := v.all(ctx)
	v.shown.close()
	err = errors.Join(err, p.variables())
	if err == nil && o.spot.asked() {
		err = a.spotCheck(ctx, p, o, found)
	}
	return errors.Join(err, a.writeVerified(folder, found, err))
}

// changedSince is the error of an image that was written to since it was published.
func changedSince(path, why string) error {
	return fault.New(fault.Changed, "%s changed since it was published, as expected after a start: %s", path, why).
		WithHint("nothing is to be done if the VM was started; if it never was, another program wrote to the image: take it from a backup")
}

// verifier verifies the images of one folder, one after the other: they are on one
// medium.
type verifier struct {
	p     *published
	shown progress
}

// all verifies every image, also after a bad one. What is corrupt comes before what changed in the
// error: it decides the exit code.
func (v *verifier) all(ctx context.Context) (found []verified, err error) {
	var bad, changed error
	for i, img := range v.p.images() {
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
func (v *verifier) explain(i int, one *verified, err error) error {
	img := v.p.record.Images[i]
	switch kind := fault.KindOf(err); kind {
	case fault.Corrupt, fault.Conflict, fault.Unsupported: // other bytes, another size, or a qcow2 that QEMU changed
	default:
		return err
	}
	path := v.p.images()[i].Path
	one.Changed = v.p.record.WrittenSince(v.p.folder, img)
	if one.Changed != "" {
		return changedSince(path, one.Changed)
	}
	if fault.Is(err, fault.Corrupt) {
		return fault.New(fault.Corrupt, "%w", err).
			WithHint("%s was not written to since it was published: look for errors of its storage (dmesg, smartctl). If the VM was never started, take the image from a backup, or migrate the VM once more, to another folder", path)
	}
	return err
}

func (v *verifier) one(ctx context.Context, img targets.Image) (_ verified, err error) {
	s, err := manifest.Load(img.Manifest)
	if err != nil {
		return verified{}, unfit(err)
	}
	defer closing(&err, s.Close)
	if s.Root().String() != img.Root {
		return verified{}, fault.New(fault.Corrupt, "manifest %s has the root %v, vm.json says %s", img.Manifest, s.Root(), img.Root).
			WithHint("one of the two was changed after the migration: take both from a backup")
	}
	src, err := v.p.target.Read(ctx, img)
	if err != nil {
		return verified{}, unfit(err)
	}
	defer closing(&err, src.Close)
	found := verified{File: filepath.Base(img.Path)}
	found.Report, err = manifest.Verify(ctx, src, s, manifest.VerifyOptions{Progress: v.progressOf(img.Key)})
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

// progressOf shows how far an image is.
func (v *verifier) progressOf(key int32) func(manifest.Progress) {
	m := newMeter(v.shown, "verify")
	m.disk = key
	return m.verifying
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
	d, ok := v.p.record.Source.Disk(img.Key)
	if img.Format == targets.Raw || !ok {
		return filepath.Base(img.Path)
	}
	file := path.Base(d.Base.File)
	return strings.TrimSuffix(file, path.Ext(file)) + "-flat.vmdk"
}

// writeVerified prints what was found, bad chunks included.
func (a *app) writeVerified(folder string, found []verified, bad error) error {
	if a.json {
		return a.print(struct {
			Folder string     `json:"folder"`
			OK     bool       `json:"ok"`
			Images []verified `json:"images"`
		}{folder, bad == nil, append([]verified{}, found...)})
	}
	for _, v := range found {
		a.writeVerifiedImage(v)
	}
	if bad == nil {
		fmt.Fprintf(a.out, "%s is what was copied.\n", folder)
	}
	return nil
}

func (a *app) writeVerifiedImage(v verified) {
	if v.Changed != "" {
		fmt.Fprintf(a.out, "%s: changed since it was published, in %d of %d MiB chunks: as expected after a start\n\n", v.File, v.BadChunks, v.Chunks)
		return
	}
	for _, b := range v.Bad {
		fmt.Fprintf(a.out, "BAD  disk %s at %d, %s: expected %v, seen %v\n", b.Disk, b.Off, size(b.Len), b.Want, b.Got)
	}
	if v.BadChunks > 0 {
		fmt.Fprintf(a.out, "%s: %d of %d MiB chunks are not what was copied\n\n", v.File, v.BadChunks, v.Chunks)
		return
	}
	t := newTable(v.File, "")
	t.add("  compared", fmt.Sprintf("%s in %d chunks, read from %s", size(v.Bytes), v.Chunks, v.Medium))
	t.add("  root", v.Root.String())
	t.add("  sha256", v.SHA256)
	t.add("  md5", v.MD5)
	if v.Reread != nil {
		t.add("  source re-read", v.Reread.String())
	}
	for _, file := range v.Audit {
		t.add("  written", file)
	}
	t.write(a.out)
	fmt.Fprintln(a.out)
}

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
