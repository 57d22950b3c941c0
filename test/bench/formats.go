package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/diskfile"
	"github.com/decamp/decamp/internal/vmdk"
)

// formatRuns is the number of runs; odd, because the median counts.
const formatRuns = 3

// A formatCase is a disk that decamp and qemu-img convert, both to a durable image.
type formatCase struct {
	figure string // name of the row
	// writes the disk in dir and returns its path
	input func(ctx context.Context, dir string) (path string, err error)
	to    string  // format of the image: raw or qcow2
	pipe  bool    // decamp also reads the disk from a pipe
	must  float64 // limit as a multiple of qemu-img's rate
	peers int     // number of runs of qemu-img; one if a run takes minutes
}

// formatCases lists all cases in the order of the table.
var formatCases = []formatCase{
	{"three COWD layers, grains in random order, to raw", cowdChain, "raw", false, 40, 1},
	{"two seSparse layers, shuffled tables, to raw", seSparseChain, "raw", false, 8, 1},
	{"streamOptimized to raw", streamDisk, "raw", true, 1.8, formatRuns},
	{"monolithicSparse to raw", sparseDisk, "raw", false, 1.5, formatRuns},
	{"flat to raw", flatDisk, "raw", false, 1, formatRuns},
	{"raw to qcow2", rawDisk, "qcow2", false, 1, formatRuns},
}

// formatFigures measures decamp convert with a manifest, and qemu-img with the same
// files from the page cache.
func formatFigures(ctx context.Context, b *bench) error {
	if err := requirePrograms("qemu-img"); err != nil {
		return err
	}
	var failed []error
	for _, c := range formatCases {
		failed = append(failed, formatFigure(ctx, b, c))
	}
	return errors.Join(append(failed, hugeDeltaFigure(ctx, b))...)
}

// formatFigure creates the disk of a case, measures it, and removes it.
func formatFigure(ctx context.Context, b *bench, c formatCase) error {
	dir, err := os.MkdirTemp(b.dir, "formats")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	in, err := c.input(ctx, dir)
	if err != nil {
		return fmt.Errorf("%s: %w", c.figure, err)
	}
	f := &formatRun{formatCase: c, in: in, out: filepath.Join(dir, "out."+c.to)}
	if err := f.takeTurns(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.figure, err)
	}
	row := f.compareRow(c.figure, f.ours)
	row.Note += fmt.Sprintf("; %.0f without", medianRate(f.bare))
	b.atLeast(c.must, row)
	if c.pipe {
		b.atLeast(c.must, f.compareRow(c.figure+", forward-only from a pipe", f.piped))
	}
	return nil
}

// formatRun is the state of measuring one case.
type formatRun struct {
	formatCase
	in, out           string        // paths of the disk and of the image
	ours, bare, piped []measurement // runs with a manifest, without one, and from a pipe with one
	peer              []float64     // MB/s
}

// takeTurns measures decamp and qemu-img in turn, so that a slow phase of the machine
// affects both.
func (f *formatRun) takeTurns(ctx context.Context) error {
	for i := range formatRuns {
		if err := f.runConvert(ctx, &f.ours, "-manifest"); err != nil {
			return err
		}
		if err := f.runConvert(ctx, &f.bare); err != nil {
			return err
		}
		if f.pipe {
			if err := f.runConvert(ctx, &f.piped, "-manifest", "-pipe"); err != nil {
				return err
			}
		}
		// A slow peer runs only in the first rounds.
		if i >= f.peers {
			continue
		}
		if err := f.convertPeer(ctx, f.ours[0].Bytes); err != nil {
			return err
		}
	}
	return nil
}

// runConvert runs childConvert, appends the result to the list, and removes the image.
func (f *formatRun) runConvert(ctx context.Context, to *[]measurement, args ...string) error {
	defer os.Remove(f.out)
	var t measurement
	err := runChild(ctx, &t, "convert", append([]string{"-in", f.in, "-out", f.out, "-format", f.to}, args...)...)
	*to = append(*to, t)
	return err
}

// convertPeer runs qemu-img with its defaults and syncs the image, because decamp's is
// durable too.
func (f *formatRun) convertPeer(ctx context.Context, size int64) error {
	defer os.Remove(f.out)
	from := "vmdk"
	if filepath.Ext(f.in) == ".raw" {
		from = "raw"
	}
	// The shell runs both commands within the measured time.
	script := fmt.Sprintf("qemu-img convert -f %s -O %s %q %q && sync %q", from, f.to, f.in, f.out, f.out)
	u, err := measureCommand(ctx, "sh", "-c", script)
	f.peer = append(f.peer, u.rate(size))
	return err
}

// compareRow returns a row with the median of decamp divided by that of qemu-img.
func (f *formatRun) compareRow(figure string, ours []measurement) Row {
	peer := median(f.peer)
	return Row{Figure: figure, Value: medianRate(ours) / peer, Unit: "x",
		Note:  fmt.Sprintf("%.0f MB/s of data, synced, with manifest", medianRate(ours)),
		Peers: []Peer{{Name: "qemu-img convert, sync", Value: 1, Note: fmt.Sprintf("%.0f MB/s; as shipped, then as durable as ours", peer)}}}
}

// medianRate returns the median rate in MB/s.
func medianRate(list []measurement) float64 {
	var rates []float64
	for _, t := range list {
		rates = append(rates, t.rate())
	}
	return median(rates)
}

// hugeDeltaFigure measures the memory for copying a delta of the largest disk to
// nothing.
func hugeDeltaFigure(ctx context.Context, b *bench) error {
	dir, err := os.MkdirTemp(b.dir, "formats")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "huge-sesparse.vmdk")
	if err := makeHugeDelta(path); err != nil {
		return err
	}
	var t measurement
	if err := runChild(ctx, &t, "convert", "-in", path, "-format", "null", "-manifest"); err != nil {
		return err
	}
	const mib = 1 << 20
	b.atMost(256, Row{Figure: "62 TiB seSparse disk, 1 % allocated: peak memory", Value: float64(t.Peak) / mib, Unit: "MiB",
		Note: fmt.Sprintf("with its manifest, sealed; %.2f TiB read at %.0f MB/s", float64(t.Bytes)/(1<<40), t.rate())})
	return nil
}

// childConvert copies a disk to an image in the way of decamp convert.
func childConvert(ctx context.Context, args []string) (t measurement, err error) {
	fs := flag.NewFlagSet("convert", flag.ContinueOnError)
	in := fs.String("in", "", "disk")
	pipe := fs.Bool("pipe", false, "read it from a pipe")
	out := fs.String("out", "", "image")
	format := fs.String("format", "raw", "raw, qcow2 or null")
	hashed := fs.Bool("manifest", false, "hash into a manifest")
	if err := fs.Parse(args); err != nil {
		return measurement{}, err
	}
	var res blockcopy.Result
	t, err = timeWork(func() (err error) {
		src, err := openFormat(ctx, *in, *pipe)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, src.close()) }()
		dst, err := createFormat(*format, *out, src.size)
		if err != nil {
			return err
		}
		defer dst.Close()
		log, done, err := tempManifest(*hashed, src.size)
		if err != nil {
			return err
		}
		defer done()
		if res, err = src.copy(ctx, dst, blockcopy.Options{Manifest: ledgerOf(log)}); err != nil {
			return err
		}
		// The image is complete. Sealing the manifest belongs to the measured work.
		if err = dst.Finish(ctx); err != nil || log == nil {
			return err
		}
		_, err = log.Seal(ctx)
		return err
	})
	t.Bytes = res.Read
	return t, err
}

// createFormat creates an image, or a Null for the format null.
func createFormat(format, path string, size int64) (disk.Target, error) {
	if format == "null" {
		return disk.NewNull(size), nil
	}
	return createImage(format, path, size)
}

// formatSource is a disk in files, or a stream from a pipe.
type formatSource struct {
	size int64 // size of the disk in bytes
	// copies the disk to a target
	copy  func(context.Context, disk.Target, blockcopy.Options) (blockcopy.Result, error)
	close func() error // closes the files or the pipe
}

// openFormat opens a disk, from a pipe if pipe is true.
func openFormat(ctx context.Context, path string, pipe bool) (*formatSource, error) {
	if pipe {
		return openPipe(ctx, path)
	}
	f, err := diskfile.Open(ctx, path, diskfile.Options{})
	if err != nil {
		return nil, err
	}
	return &formatSource{f.Size(), func(ctx context.Context, dst disk.Target, o blockcopy.Options) (blockcopy.Result, error) {
		return blockcopy.Copy(ctx, f, dst, o)
	}, f.Close}, nil
}

// openPipe reads the file from a real pipe, so that the process at its other end also
// uses processor time.
func openPipe(ctx context.Context, path string) (*formatSource, error) {
	cat := exec.CommandContext(ctx, "cat", path)
	out, err := cat.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cat.Start(); err != nil {
		return nil, err
	}
	s, err := vmdk.ReadStream(ctx, out)
	if err != nil {
		return nil, errors.Join(err, out.Close(), cat.Wait())
	}
	return &formatSource{s.Size(), func(ctx context.Context, dst disk.Target, o blockcopy.Options) (blockcopy.Result, error) {
		return blockcopy.Receive(ctx, s, dst, o)
	}, cat.Wait}, nil
}
