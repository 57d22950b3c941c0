package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/manifest"
)

// verifySize is the size of the image in bytes.
const verifySize = 4 << 30

// verifyFigures measures reading an image from the medium, with BLAKE3 of each chunk
// compared, and SHA-256 and MD5 of the whole. The peers compute one of the sums and
// compare nothing.
func verifyFigures(ctx context.Context, b *bench) error {
	image := filepath.Join(b.dir, "verify.raw")
	defer os.Remove(image)
	defer os.Remove(image + ".manifest")
	if err := makeProven(ctx, image); err != nil {
		return err
	}
	var t measurement
	if err := runChild(ctx, &t, "verify", "-path", image); err != nil {
		return err
	}
	row := Row{Figure: "verify: manifest, sha256 and md5, from the medium", Value: t.rate(), Unit: "MB/s",
		Note: fmt.Sprintf("%.2f CPU s/GiB, %.0f MiB at most; MD5 is the slowest part and cannot be split", t.cpuPerGiB(), float64(t.Peak)/(1<<20))}
	for _, sum := range []string{"sha256sum", "md5sum"} {
		// dd drops the file from the page cache without reading it.
		u, err := measureCommand(ctx, "sh", "-c", fmt.Sprintf("dd if=%q iflag=nocache count=0 status=none && %s %q", image, sum, image))
		if err != nil {
			return err
		}
		row.Peers = append(row.Peers, Peer{Name: sum, Value: u.rate(verifySize), Note: "one sum, cache dropped before"})
	}
	b.addRow(row)
	return nil
}

// makeProven writes an image without zeros and its sealed manifest.
func makeProven(ctx context.Context, path string) error {
	dst, err := rawfile.Create(path, verifySize, rawfile.Options{})
	if err != nil {
		return err
	}
	defer dst.Close()
	log, err := manifest.Create(path+".manifest", manifest.Info{Disk: "bench", Size: verifySize})
	if err != nil {
		return err
	}
	defer log.Close()
	if _, err := blockcopy.Copy(ctx, disk.NewPattern(verifySize), dst, blockcopy.Options{Manifest: log}); err != nil {
		return err
	}
	_, err = log.Seal(ctx)
	return errors.Join(err, dst.Finish(ctx))
}

// childVerify verifies an image with its manifest.
func childVerify(ctx context.Context, args []string) (_ measurement, err error) {
	fs := flag.NewFlagSet("verify", flag.ContinueOnError)
	path := fs.String("path", "", "image; its manifest lies beside it")
	if err := fs.Parse(args); err != nil {
		return measurement{}, err
	}
	sealed, err := manifest.Load(*path + ".manifest")
	if err != nil {
		return measurement{}, err
	}
	defer sealed.Close()
	src, err := rawfile.OpenSource(*path, rawfile.SourceOptions{Direct: true})
	if err != nil {
		return measurement{}, err
	}
	defer src.Close()
	t, err := timeWork(func() error {
		_, err := manifest.Verify(ctx, src, sealed, manifest.VerifyOptions{})
		return err
	})
	t.Bytes = src.Size()
	return t, err
}
