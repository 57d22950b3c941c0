package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/appliance"
	"github.com/decamp/decamp/internal/convert/overlay"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/extwrite"
)

const (
	applianceBound = 30        // limit in seconds, emulated
	applianceRuns  = 3         // number of runs; odd, because the median counts
	applianceDisk  = 320 << 20 // size in bytes, the smallest that mkfs.xfs accepts
)

// applianceFigures measures an appliance from its start until a file system is
// unmounted. That is the additional time of a conversion for a guest on XFS instead of
// ext4.
func applianceFigures(ctx context.Context, b *bench) error {
	program, err := b.buildProgram(ctx)
	if err != nil {
		return err
	}
	kernels, err := filepath.Glob("build/kernel/boot/vmlinuz-*")
	if err != nil || len(kernels) != 1 {
		return errors.New("no kernel in build/kernel: run scripts/setup.sh bench")
	}
	image := filepath.Join(b.dir, "appliance.raw")
	defer os.Remove(image)
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, applianceDisk)); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "/usr/sbin/mkfs.xfs", "-q", "-f", image).CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.xfs: %w: %s", err, out)
	}
	// A KVM that is never available makes the appliance run emulated, which is the slow
	// case.
	emulated := appliance.Options{Kernel: kernels[0], Program: program, KVM: func(context.Context) error { return errors.ErrUnsupported }}
	var took []float64
	for range applianceRuns {
		began := time.Now()
		if err := changeXFS(ctx, appliance.New(emulated), image); err != nil {
			return err
		}
		took = append(took, time.Since(began).Seconds())
	}
	b.atMost(applianceBound, Row{Figure: "appliance, emulated", Value: median(took), Unit: "s",
		Note: fmt.Sprintf("boot, mount XFS, write 16 MiB, unmount; median of %d", applianceRuns)})
	return nil
}

// changeXFS writes a file with the size of an initramfs to an overlay of the image. The
// image does not change.
func changeXFS(ctx context.Context, a *appliance.Appliance, image string) (err error) {
	src, err := rawfile.OpenSource(image, rawfile.SourceOptions{})
	if err != nil {
		return err
	}
	o := overlay.New(src, 64<<20)
	defer func() { err = errors.Join(err, o.Close()) }()
	m, err := a.Mount(ctx, []convert.Volume{{Name: "sda", Kind: guest.XFS, Device: o.Slice(ctx, 0, o.Size())}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.FileSystem(0).WriteFile("initrd.img", make([]byte, 16<<20), extwrite.Attr{Mode: 0o600}); err != nil {
		return err
	}
	return m.Unmount()
}
