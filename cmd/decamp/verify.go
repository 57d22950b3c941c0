package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/progress"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/targets/dir/verify"
	"github.com/decamp/decamp/internal/units"
)

const verifyHelp = `
Read the images of a migrated VM, or one converted image, back from the medium, and compare
every MiB with the manifest that was made during the copy.

FOLDER is the folder that decamp migrate published, with a vm.json. IMAGE is an image of
decamp convert, with its manifest beside it. A difference is reported with disk, offset,
expected hash and actual hash. The variables of a VM's EFI firmware are compared as well.
A missing audit file NAME.sha256 is written, for sha256sum -c; sha256sum on the host prints the
same sum for the flat file. Nothing else in the folder is changed. --md5 also writes NAME.md5,
for hosts without sha256sum. MD5 takes about twice as long as SHA-256.

A VM that was started has changed its images. verify then exits with code 11 and does not
report corruption: if QEMU or another program has locked an image for writing, or if the image
was written to after its publication. Do not copy such a VM again: that would discard its
changes. Verify a copy before its first start.

--spot also reads a sample of each disk from the source (--source) and compares it: the first
SIZE bytes, the last MiB and N random MiB. The result is meaningful only before either VM
runs.
`

const verifyExamples = `
decamp verify /srv/vm/web01
decamp verify /srv/vm/web01 --json | tail -1
decamp verify /srv/vm/web01 --spot 100M,32 --source esxi://root@esx1
decamp verify web01.qcow2
`

// verifyCommand is decamp verify.
type verifyCommand struct {
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
	login     assemble.Login      // login to the source
	spot      spot                // value of --spot
	md5       bool                // also compute MD5
	source    string              // URL of the source for --spot
}

// newVerify returns the command decamp verify.
func newVerify(p *program) *cobra.Command {
	vc := &verifyCommand{out: p.out, assembler: p.assembler}
	cmd := &cobra.Command{
		Use:     "verify FOLDER|IMAGE",
		Short:   "Verify the images of a migrated VM or a converted image",
		Long:    trimHelp(verifyHelp),
		Example: trimHelp(verifyExamples),
		Args:    exactArgs("FOLDER or IMAGE"),
		Annotations: exitCodes(
			exit{fault.NotFound, "the folder is not that of a migrated VM, or an image is missing"},
			exit{fault.Denied, "files cannot be read; with --spot also: wrong password, or unknown or changed certificate"},
			exit{fault.Unreachable, "with --spot: the address does not answer"},
			exit{fault.Conflict, "with --spot: the VM runs"},
			exit{fault.Corrupt, "an image differs from the copied data, without a write since its publication"},
			exit{fault.Changed, "an image changed since it was published, as expected after a start"}),
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			if vc.spot.isRequested() != (vc.source != "") {
				return badUsage(cmd, "--spot and --source require each other")
			}
			return vc.runVerify(cmd.Context(), args[0])
		}),
	}
	f := cmd.Flags()
	f.Var(&vc.spot, "spot", "read the first bytes, the last MiB and N random MiB of each disk from the source again, and compare (N: 64)")
	f.BoolVar(&vc.md5, "md5", false, "also compute MD5 and write NAME.md5, for md5sum on the host")
	f.StringVar(&vc.source, "source", "", "`URL` of the source for --spot, as for decamp ls")
	registerLogin(&vc.login, cmd)
	return cmd
}

// runVerify verifies the images in a folder, or one converted image.
func (vc *verifyCommand) runVerify(ctx context.Context, folder string) (err error) {
	if info, err := os.Stat(folder); err == nil && info.Mode().IsRegular() {
		return vc.runImage(ctx, folder)
	}
	p, err := dir.OpenPublished(folder)
	if err != nil {
		return err
	}
	if err := p.CheckPresent(); err != nil {
		return err
	}
	if vc.spot.isRequested() && p.Converted() {
		return fault.New(fault.Invalid, "%s was converted: its images differ from the source, as vm.json lists", folder).
			WithHint("omit --spot and --source; the root hash of the copy is in vm.json (copied)")
	}
	shown := newProgress(vc.out, nil)
	found, err := verify.Folder(ctx, p, verify.Options{MD5: vc.md5, Meter: func(key int32) func(manifest.Progress) {
		m := progress.NewMeter(shown, "verify")
		m.Disk = key
		return m.ShowVerify
	}})
	shown.Close()
	err = errors.Join(err, p.CheckNVRAM())
	if err == nil && vc.spot.isRequested() {
		err = vc.spotCheck(ctx, p, found)
	}
	return errors.Join(err, vc.writeVerified(folder, found, err))
}

// writeVerified prints the results, with damaged chunks.
func (vc *verifyCommand) writeVerified(folder string, found []verify.Image, bad error) error {
	if vc.out.json {
		return vc.out.printJSON(struct {
			Folder string         `json:"folder"`
			OK     bool           `json:"ok"`
			Images []verify.Image `json:"images"`
		}{folder, bad == nil, append([]verify.Image{}, found...)})
	}
	for _, v := range found {
		vc.writeVerifiedImage(v)
	}
	if bad == nil {
		fmt.Fprintf(vc.out, "%s is identical with the copied data.\n", folder)
	}
	return nil
}

// writeVerifiedImage prints the result of one image.
func (vc *verifyCommand) writeVerifiedImage(v verify.Image) {
	if v.Changed != "" {
		fmt.Fprintf(vc.out, "%s: changed since it was published, in %d of %d MiB chunks: as expected after a start\n\n", v.File, v.BadChunks, v.Chunks)
		return
	}
	for _, b := range v.Bad {
		fmt.Fprintf(vc.out, "BAD  disk %s at %d, %s: expected %v, seen %v\n", b.Disk, b.Off, units.Binary(b.Len), b.Want, b.Got)
	}
	if v.BadChunks > 0 {
		fmt.Fprintf(vc.out, "%s: %d of %d MiB chunks differ from the copied data\n\n", v.File, v.BadChunks, v.Chunks)
		return
	}
	t := newTable(v.File, "")
	t.addRow("  compared", fmt.Sprintf("%s in %d chunks, read from %s", units.Binary(v.Bytes), v.Chunks, v.Medium))
	t.addRow("  root", v.Root.String())
	t.addRow("  sha256", v.SHA256)
	if v.MD5 != "" {
		t.addRow("  md5", v.MD5)
	}
	if v.Reread != nil {
		t.addRow("  source re-read", v.Reread.String())
	}
	for _, file := range v.Audit {
		t.addRow("  written", file)
	}
	t.writeTo(vc.out)
	fmt.Fprintln(vc.out)
}

// runImage compares a converted image with the manifest beside it. It writes no audit files: the sums
// are printed.
func (vc *verifyCommand) runImage(ctx context.Context, path string) error {
	if vc.spot.isRequested() {
		return fault.New(fault.Invalid, "%s is a converted image: --spot reads the source of a migrated VM", path).
			WithHint("omit --spot and --source")
	}
	shown := newProgress(vc.out, nil)
	found, err := verify.File(ctx, path, manifest.VerifyOptions{MD5: vc.md5, Progress: progress.NewMeter(shown, "verify").ShowVerify})
	shown.Close()
	if found.Chunks == 0 {
		return err
	}
	return errors.Join(err, vc.writeVerified(path, []verify.Image{found}, err))
}

// spotCheck compares samples of the source with the manifests of the images.
func (vc *verifyCommand) spotCheck(ctx context.Context, p *dir.Published, found []verify.Image) (err error) {
	from, err := vc.assembler.OpenOrigin(ctx, vc.source, vc.login, p.Record.Source.Ref)
	if err != nil {
		return err
	}
	defer joinClose(&err, from.Close)
	for i, img := range p.Images() {
		report, err := spotOne(ctx, from, img, vc.spot)
		if err != nil {
			return fmt.Errorf("compare with the source: %w", err)
		}
		found[i].Reread = &report
	}
	return nil
}

// spotOne compares a sample of one disk of the source with the manifest of its image.
func spotOne(ctx context.Context, from *assemble.Origin, img targets.Image, s spot) (report manifest.Reread, err error) {
	sample, err := s.newSample()
	if err != nil {
		return report, err
	}
	m, err := manifest.Load(img.Manifest)
	if err != nil {
		return report, err
	}
	defer joinClose(&err, m.Close)
	source, err := from.Disk(ctx, img.Key)
	if err != nil {
		return report, err
	}
	defer joinClose(&err, source.Close)
	report, err = sample.Compare(ctx, source, m, nil)
	report.By = "https"
	return report, err
}
