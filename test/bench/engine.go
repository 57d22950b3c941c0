package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// engineFigures measures blockcopy between a source and a target that need almost no
// time.
func engineFigures(ctx context.Context, b *bench) error {
	for _, f := range []struct {
		name string
		args []string
	}{
		{"engine alone: Pattern to Null", nil},
		{"engine with manifest: Pattern to Null", []string{"-manifest"}},
	} {
		var t measurement
		args := append([]string{"-size", formatInt(8 << 30), "-null"}, f.args...)
		if err := runChild(ctx, &t, "check", args...); err != nil {
			return err
		}
		b.addRow(Row{Figure: f.name, Value: t.cpuPerGiB(), Unit: "CPU s/GiB", Note: fmt.Sprintf("%.0f MB/s", t.rate())})
	}
	return nil
}

// hugeFigures copies a disk of 6 TiB with 3 TiB of data without storage. Each byte is
// computed from its offset, hashed, and compared.
func hugeFigures(ctx context.Context, b *bench) error {
	var small, huge measurement
	if err := runChild(ctx, &small, "check", "-size", formatInt(16<<30), "-fill", "0.55", "-manifest"); err != nil {
		return err
	}
	if err := runChild(ctx, &huge, "check", "-size", formatInt(6<<40), "-fill", "0.55", "-manifest"); err != nil {
		return err
	}
	const mib = 1 << 20
	b.addRow(Row{Figure: "6 TiB disk: data copied and checked", Value: float64(huge.Bytes) / (1 << 40), Unit: "TiB",
		Note: fmt.Sprintf("every byte right, %.0f MB/s", huge.rate())})
	b.atMost(128, Row{Figure: "6 TiB disk: peak memory", Value: float64(huge.Peak) / mib, Unit: "MiB",
		Note: fmt.Sprintf("%.0f MiB for 16 GiB; Check keeps 4 bytes per MiB, 24 MiB, the manifest up to as much", float64(small.Peak)/mib)})
	return nil
}

// childCheck copies a Pattern to a Check or a Null.
func childCheck(ctx context.Context, args []string) (measurement, error) {
	fs := flag.NewFlagSet("check", flag.ContinueOnError)
	size := fs.Int64("size", 1<<30, "bytes of disk")
	fill := fs.Float64("fill", 1, "share that is data")
	null := fs.Bool("null", false, "copy to Null")
	hashed := fs.Bool("manifest", false, "hash into a manifest")
	if err := fs.Parse(args); err != nil {
		return measurement{}, err
	}
	src := disk.NewPattern(*size)
	if *fill < 1 {
		src = disk.NewSparsePattern(*size, *fill, 1)
	}
	var dst disk.Target = disk.NewCheck(src)
	if *null {
		dst = disk.NewNull(*size)
	}
	log, done, err := tempManifest(*hashed, *size)
	if err != nil {
		return measurement{}, err
	}
	defer done()
	return copyTimed(ctx, src, dst, ledgerOf(log))
}

// copyTimed copies and finishes. Bytes of the result counts the data.
func copyTimed(ctx context.Context, src disk.Source, dst disk.Target, log manifest.Ledger) (measurement, error) {
	var res blockcopy.Result
	t, err := timeWork(func() (err error) {
		if res, err = blockcopy.Copy(ctx, src, dst, blockcopy.Options{Manifest: log}); err != nil {
			return err
		}
		return dst.Finish(ctx)
	})
	t.Bytes = res.Read
	return t, err
}

// tempManifest creates a manifest in a temporary folder, or returns nil if it is not
// wanted. done removes the folder.
func tempManifest(wanted bool, size int64) (log *manifest.Log, done func(), err error) {
	if !wanted {
		return nil, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "decamp-bench")
	if err != nil {
		return nil, nil, err
	}
	log, err = manifest.Create(filepath.Join(dir, "manifest"), manifest.Info{Disk: "bench", Size: size})
	return log, func() { log.Close(); os.RemoveAll(dir) }, err
}

// ledgerOf converts a nil Log to a nil Ledger.
func ledgerOf(log *manifest.Log) manifest.Ledger {
	if log == nil {
		return nil
	}
	return log
}
