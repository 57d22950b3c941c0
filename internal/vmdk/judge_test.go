package vmdk_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/vmdk"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
)

// requires skips a test whose judge is not installed. scripts/setup.sh installs it.
func requires(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed", program)
	}
}

// write makes the files of a chain.
func write(t *testing.T, c vmdktest.Chain) *vmdktest.Disk {
	t.Helper()
	d, err := c.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// open opens a file of a folder as a disk.
func open(t *testing.T, folder, name string) *vmdk.Disk {
	t.Helper()
	d, err := vmdk.Open(t.Context(), vmdk.Folder(folder), name, vmdk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// We and qemu-img must read what the overlay says; where qemu is known to be wrong, the
// overlay decides alone.
func TestReadsAsTheOverlayAndAsQEMU(t *testing.T) {
	requires(t, "qemu-img")
	for _, r := range vmdktest.Recipes() {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			d := write(t, r.Chain)
			if err := d.Want.Compare(t.Context(), open(t, d.Folder, d.Name)); err != nil {
				t.Errorf("decamp: %v", err)
			}
			if r.Unread != "" {
				return
			}
			raw, err := vmdktest.QEMU(t.Context(), d.Path(), filepath.Join(d.Folder, "raw"))
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			if err := d.Want.Compare(t.Context(), raw); err != nil {
				t.Errorf("qemu-img: %v", err)
			}
		})
	}
}

// What is called zero must be zeros in the overlay, and everything must be described.
func TestExtentsAreTrue(t *testing.T) {
	for _, r := range vmdktest.Recipes() {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			d := write(t, r.Chain)
			if err := zerosAreZeros(t.Context(), open(t, d.Folder, d.Name), d.Want); err != nil {
				t.Error(err)
			}
		})
	}
}

// zerosAreZeros lets disk.Check compare what src calls zero and what it reads; it fails
// also if a byte is described twice or not at all.
func zerosAreZeros(ctx context.Context, src disk.Source, want *vmdktest.Overlay) error {
	check := disk.NewCheck(want)
	const step = 3<<20 + disk.SectorSize // windows that end inside of grains
	for off := int64(0); off < src.Size(); off += step {
		extents, err := src.Extents(ctx, disk.Range{Off: off, Len: min(step, src.Size()-off)})
		if err != nil {
			return err
		}
		for _, e := range extents {
			if err := cover(ctx, check, src, e); err != nil {
				return err
			}
		}
	}
	return check.Finish(ctx)
}

func cover(ctx context.Context, check *disk.Check, src disk.Source, e disk.Extent) error {
	if e.Kind == disk.Zero {
		return check.Zero(ctx, e.Range)
	}
	buf := make([]byte, e.Len)
	if err := src.ReadAt(ctx, buf, e.Off); err != nil {
		return err
	}
	return check.WriteAt(ctx, buf, e.Off)
}
