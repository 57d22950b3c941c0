package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/qcow2"
)

const (
	writerSize = 4 << 30 // size of the disk in bytes
	writerFill = 0.6     // share of data
	writerSeed = 1       // seed of the data's position
	writerRuns = 5       // number of runs; odd, because the median counts
)

// qemuImg are the ways the peer is run: as shipped, and tuned by hand. Alone it returns
// when its output is in the page cache; ours when it is on the disk, so each also runs
// with a sync of its output.
var qemuImg = []struct {
	name string
	args string
	sync bool
	note string
}{
	{"qemu-img convert", "", false, "as shipped; leaves the page cache unwritten"},
	{"qemu-img convert, sync", "", true, "as shipped, then as durable as ours"},
	{"qemu-img convert -m 16 -W", "-m 16 -W", false, "tuned; leaves the page cache unwritten"},
	{"qemu-img convert -m 16 -W, sync", "-m 16 -W", true, "tuned, then as durable as ours"},
	{"qemu-img convert -t none -m 16 -W, sync", "-t none -m 16 -W", true, "tuned, O_DIRECT as ours"},
}

// qemuImgArgs returns the arguments of sh for entry i of qemuImg.
func qemuImgArgs(i int, format, src, out string) []string {
	q := qemuImg[i]
	script := fmt.Sprintf("qemu-img convert -f raw -O %s %s %q %q", format, q.args, src, out)
	if q.sync {
		script += fmt.Sprintf(" && sync %q", out)
	}
	return []string{"-c", script}
}

// writerFigures measures image formats without a source: it writes a Pattern to an
// image and syncs. qemu-img converts the same data from the page cache.
func writerFigures(ctx context.Context, b *bench) error {
	if err := requirePrograms("qemu-img"); err != nil {
		return err
	}
	src := filepath.Join(b.dir, "writers.raw")
	defer os.Remove(src)
	if err := makeCached(ctx, src); err != nil {
		return err
	}
	for _, format := range []string{"raw", "qcow2"} {
		if err := writerFigure(ctx, b, format, src); err != nil {
			return err
		}
	}
	return nil
}

// makeCached writes the pattern to a sparse file, and reads the file into the page
// cache.
func makeCached(ctx context.Context, path string) error {
	dst, err := rawfile.Create(path, writerSize, rawfile.Options{})
	if err != nil {
		return err
	}
	defer dst.Close()
	if _, err := copyTimed(ctx, disk.NewSparsePattern(writerSize, writerFill, writerSeed), dst, nil); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(io.Discard, f)
	return err
}

// writerFigure measures one format. decamp and each variant of qemu-img run in turn, so
// that a slow phase of the machine affects all.
func writerFigure(ctx context.Context, b *bench, format, src string) error {
	out := filepath.Join(b.dir, "writers."+format+".out")
	defer os.Remove(out)
	var ours, cpu []float64
	peers := make([][]float64, len(qemuImg))
	for range writerRuns {
		var t measurement
		if err := runChild(ctx, &t, "write", "-format", format, "-path", out); err != nil {
			return err
		}
		ours, cpu = append(ours, t.rate()), append(cpu, t.cpuPerGiB())
		// Each variant writes the same output file, which is removed before.
		for i := range qemuImg {
			if err := os.Remove(out); err != nil {
				return err
			}
			u, err := measureCommand(ctx, "sh", qemuImgArgs(i, format, src, out)...)
			if err != nil {
				return err
			}
			peers[i] = append(peers[i], u.rate(t.Bytes))
		}
		if err := os.Remove(out); err != nil {
			return err
		}
	}
	row := Row{Figure: format + " writer alone: Pattern to image, synced", Value: median(ours), Unit: "MB/s",
		Note: fmt.Sprintf("%.2f CPU s/GiB; median of %d", median(cpu), writerRuns)}
	for i, q := range qemuImg {
		row.Peers = append(row.Peers, Peer{Name: q.name, Value: median(peers[i]), Note: q.note})
	}
	b.addRow(row)
	b.atLeast(1, Row{Figure: format + " writer alone, against qemu-img as shipped, both synced", Value: median(ours) / median(peers[1]), Unit: "x",
		Note: fmt.Sprintf("%.2f x if qemu-img may leave its output in the page cache", median(ours)/median(peers[0]))})
	return nil
}

// childWrite copies a Pattern to a new image.
func childWrite(ctx context.Context, args []string) (measurement, error) {
	fs := flag.NewFlagSet("write", flag.ContinueOnError)
	format := fs.String("format", "raw", "raw or qcow2")
	path := fs.String("path", "", "image")
	if err := fs.Parse(args); err != nil {
		return measurement{}, err
	}
	dst, err := createImage(*format, *path, writerSize)
	if err != nil {
		return measurement{}, err
	}
	defer dst.Close()
	return copyTimed(ctx, disk.NewSparsePattern(writerSize, writerFill, writerSeed), dst, nil)
}

// createImage creates a qcow2 or raw image.
func createImage(format, path string, size int64) (disk.Target, error) {
	if format == "qcow2" {
		return qcow2.Create(path, size, qcow2.Options{})
	}
	return rawfile.Create(path, size, rawfile.Options{})
}
