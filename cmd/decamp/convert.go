package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble/diskimage"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/progress"
	"github.com/decamp/decamp/internal/units"
)

const convertHelp = `
Convert the files of one disk into one raw or qcow2 image.

IN is a disk: x.vmdk of any kind, or the newest delta of a snapshot chain, whose parents are
looked up beside it; a qcow2 image; or a raw image (.raw, .img). With - it is a
streamOptimized VMDK, as exports contain it, from the standard input.

The content of IN determines its format. If its name suggests another format, a warning names
both. A file is read as raw only if it has no signature of another format, or with --from raw,
or if vm.json or its manifest records that decamp wrote it as a raw image.

The name of OUT determines its format (.qcow2; .raw or .img), unless --format is set. The
image is written to OUT.partial. Each MiB is hashed into a manifest, read back from the medium
and compared. Then the image is renamed to OUT, and its manifest to OUT.manifest. An
interrupted conversion continues with the same command; only the standard input starts from
its beginning.

IN is never modified. An existing OUT is replaced only with --force.
`

const convertExamples = `
decamp convert web01-000002.vmdk web01.qcow2
decamp convert web01.vmdk /srv/vm/web01.raw --folder /mnt/datastore2
curl -s http://files/web01-disk1.vmdk | decamp convert - web01.qcow2
`

// convertCommand is decamp convert.
type convertCommand struct {
	inputFlags
	in       *os.File // the standard input
	out      *output  // output and messages
	format   string   // format of OUT; empty: by its name
	force    bool     // replace an existing OUT
	noVerify bool     // do not read the image back
	sums     bool     // also compute SHA-256 and MD5
}

// newConvert returns the command decamp convert.
func newConvert(p *program) *cobra.Command {
	cv := &convertCommand{in: p.in, out: p.out}
	cmd := &cobra.Command{
		Use:     "convert IN OUT",
		Short:   "Convert a disk of any format into a raw or qcow2 image",
		Long:    trimHelp(convertHelp),
		Example: trimHelp(convertExamples),
		Args:    exactArgs("IN", "OUT"),
		Annotations: exitCodes(
			exit{fault.NotFound, "a file of the disk does not exist; a parent may require --folder"},
			exit{fault.Denied, "a file cannot be read or written"},
			exit{fault.Conflict, "OUT exists, another decamp process writes it, or the disk was changed"},
			exit{fault.Unsupported, "decamp cannot read the disk; the error has a remedy"},
			exit{fault.Corrupt, "the disk is damaged, or the image differs from the written data"},
			exit{fault.Full, "no space left; free space and run the command again"}),
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			if err := cv.checkFlags(cmd, args[0], args[1]); err != nil {
				return err
			}
			return cv.runConvert(cmd.Context(), args[0], args[1])
		}),
	}
	f := cmd.Flags()
	f.StringVar(&cv.format, "format", "", "format of OUT: `raw or qcow2` (default by its name)")
	f.BoolVar(&cv.force, "force", false, "replace an existing OUT")
	f.BoolVar(&cv.noVerify, "no-verify", false, "do not read the image back; the manifest is still written")
	f.BoolVar(&cv.sums, "sums", false, "also print SHA-256 and MD5 of the disk, which hashes empty areas, too")
	cv.inputFlags.registerFlags(cmd)
	return cmd
}

// checkFlags refuses contradicting flags and determines the format of OUT.
func (cv *convertCommand) checkFlags(cmd *cobra.Command, in, out string) error {
	if cv.format == "" {
		cv.format = map[string]string{".qcow2": "qcow2", ".raw": "raw", ".img": "raw"}[strings.ToLower(filepath.Ext(out))]
	}
	switch {
	case cv.format == "":
		return badUsage(cmd, "the format of %s is unknown: name it .raw, .img or .qcow2, or use --format", out)
	case cv.format != "raw" && cv.format != "qcow2":
		return badUsage(cmd, "--format %q: want raw or qcow2", cv.format)
	}
	if cv.sums && cv.noVerify {
		return badUsage(cmd, "--sums and --no-verify exclude each other: the sums are computed during verification")
	}
	return cv.inputFlags.checkFlags(cmd, in)
}

// runConvert converts the disk at inPath into the image at outPath, with progress on the screen.
func (cv *convertCommand) runConvert(ctx context.Context, inPath, outPath string) (err error) {
	in, err := diskimage.OpenInput(ctx, cv.in, inPath, cv.diskOptions(inPath))
	if err != nil {
		return err
	}
	defer joinClose(&err, in.Close)
	shown := newProgress(cv.out, nil)
	made, err := diskimage.Conversion{
		In: in, Path: inPath, Out: outPath, Format: image.Format(cv.format), Replace: cv.force, NoVerify: cv.noVerify, Sums: cv.sums,
		Shown: shown.HandleEvent, NewMeter: func(step string) diskimage.Meter { return progress.NewMeter(shown, step) },
	}.Run(ctx)
	shown.Close()
	for _, w := range made.Warnings {
		cv.out.warn("%s", fault.Printable(w))
	}
	if err != nil {
		return err
	}
	return cv.writeConverted(made)
}

// writeConverted prints the created image and its verification.
func (cv *convertCommand) writeConverted(c diskimage.Result) error {
	if cv.out.json {
		return cv.out.printJSON(c)
	}
	fmt.Fprintf(cv.out, "%s is written.\n", fault.Printable(c.Out))
	t := newTable("  disk", fmt.Sprintf("%s, %s read, %s written", units.Binary(c.Size), units.Binary(c.Copied.Read), units.Binary(c.Copied.Written)))
	t.addRow("  manifest", fault.Printable(c.Manifest))
	t.addRow("  root", c.Root.String())
	if v := c.Verified; v != nil {
		if v.SHA256 != "" {
			t.addRow("  sha256", v.SHA256)
			t.addRow("  md5", v.MD5)
		}
		t.addRow("  verified", "the whole image, read from "+v.Medium)
	} else {
		t.addRow("  verified", "no, because of --no-verify")
	}
	t.writeTo(cv.out)
	return nil
}
