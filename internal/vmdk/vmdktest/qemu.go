package vmdktest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/decamp/decamp/internal/disk"
)

// A Raw is a raw image that another program wrote. It is a disk.Source without holes.
type Raw struct{ f *os.File }

// QEMU converts the VMDK at path to the raw image out with `qemu-img convert`, and opens out. The error
// contains QEMU's message if it refuses the disk.
func QEMU(ctx context.Context, path, out string) (*Raw, error) {
	var words bytes.Buffer
	cmd := exec.CommandContext(ctx, "qemu-img", "convert", "-f", "vmdk", "-O", "raw", path, out)
	cmd.Stdout, cmd.Stderr = &words, &words
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("qemu-img convert: %w: %s", err, bytes.TrimSpace(words.Bytes()))
	}
	f, err := os.Open(out)
	return &Raw{f}, err
}

// Size returns the length of the file in bytes, or -1 if it cannot be determined.
func (r *Raw) Size() int64 {
	info, err := r.f.Stat()
	if err != nil {
		return -1
	}
	return info.Size()
}

// ReadAt fills p from off.
func (r *Raw) ReadAt(ctx context.Context, p []byte, off int64) error {
	if _, err := r.f.ReadAt(p, off); err != nil {
		return err
	}
	return ctx.Err()
}

// Extents reports all of d as data.
func (r *Raw) Extents(_ context.Context, d disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: d, Kind: disk.Data}}, nil
}

// Hints returns no preferences.
func (r *Raw) Hints() disk.Hints { return disk.Hints{} }

// Close closes the file.
func (r *Raw) Close() error { return r.f.Close() }
