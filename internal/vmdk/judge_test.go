package vmdk_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/vmdk"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
)

// requireProgram skips the test if the program is not installed. scripts/setup.sh installs it.
func requireProgram(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed", program)
	}
}

// writeChain writes the files of a chain.
func writeChain(t *testing.T, c vmdktest.Chain) *vmdktest.Disk {
	t.Helper()
	d, err := c.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// openDisk opens a file in a folder as a disk.
func openDisk(t *testing.T, folder, name string) *vmdk.Disk {
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

// Each recipe reads as its overlay: as a whole, by its extents, in ranges, and in one pass if it is a
// stream. The tests of package vmdktest compare the overlay with the output of qemu-img.
func TestRecipesMatchOverlay(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, r := range vmdktest.Recipes() {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			d := writeChain(t, r.Chain)
			src := openDisk(t, d.Folder, d.Name)
			if err := d.Want.Compare(t.Context(), src); err != nil {
				t.Error(err)
			}
			if err := compareExtents(t.Context(), src, d.Want); err != nil {
				t.Error(err)
			}
			readAtAnyOffset(t, src, d.Want)
			if isStream(r) {
				readInOnePass(t, d)
			}
		})
	}
}

// readAtAnyOffset compares ranges that begin and end within grains and sectors.
func readAtAnyOffset(t *testing.T, src disk.Source, want *vmdktest.Overlay) {
	t.Helper()
	for i := range int64(40) {
		off := (i*7919*disk.SectorSize + i*131) % src.Size()
		n := min(1+(i*i*977)%(300<<10), src.Size()-off)
		at := disk.Range{Off: off, Len: n}
		if string(readRange(t, src, at)) != string(readRange(t, want, at)) {
			t.Fatalf("content of %v differs", at)
		}
	}
}

// compareExtents compares the extents of src and their content with want. It also fails if extents overlap or
// leave a gap.
func compareExtents(ctx context.Context, src disk.Source, want *vmdktest.Overlay) error {
	check := disk.NewCheck(want)
	const step = 3<<20 + disk.SectorSize // not a multiple of the grain size: windows end within grains
	for off := int64(0); off < src.Size(); off += step {
		extents, err := src.Extents(ctx, disk.Range{Off: off, Len: min(step, src.Size()-off)})
		if err != nil {
			return err
		}
		for _, e := range extents {
			if err := checkExtent(ctx, check, src, e); err != nil {
				return err
			}
		}
	}
	return check.Finish(ctx)
}

func checkExtent(ctx context.Context, check *disk.Check, src disk.Source, e disk.Extent) error {
	if e.Kind == disk.Zero {
		return check.Zero(ctx, e.Range)
	}
	buf := make([]byte, e.Len)
	if err := src.ReadAt(ctx, buf, e.Off); err != nil {
		return err
	}
	return check.WriteAt(ctx, buf, e.Off)
}

// qemu-img writes these files from known content.
func TestReadsDisksOfQEMU(t *testing.T) {
	requireProgram(t, "qemu-img")
	for _, sectors := range []int64{vmdktest.Odd, 2 * 65536} {
		for _, options := range []string{
			"subformat=monolithicSparse", "subformat=monolithicSparse,zeroed_grain=on", "subformat=monolithicSparse,compat6",
			"subformat=monolithicFlat", "subformat=twoGbMaxExtentSparse", "subformat=twoGbMaxExtentFlat", "subformat=streamOptimized",
		} {
			t.Run(fmt.Sprintf("%s of %d sectors", options, sectors), func(t *testing.T) {
				t.Parallel()
				d := writeChain(t, vmdktest.Chain{Seed: 7, Layers: []vmdktest.Layer{{Sectors: sectors, Data: 0.4, Run: 3}}})
				out := filepath.Join(t.TempDir(), "q.vmdk")
				cmd := exec.Command("qemu-img", "convert", "-f", "raw", "-O", "vmdk", "-o", options, filepath.Join(d.Folder, "disk-flat.vmdk"), out)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("qemu-img: %v: %s", err, out)
				}
				src := openDisk(t, filepath.Dir(out), filepath.Base(out))
				if err := d.Want.Compare(t.Context(), src); err != nil {
					t.Error(err)
				}
				if err := compareExtents(t.Context(), src, d.Want); err != nil {
					t.Error(err)
				}
				if strings.HasSuffix(options, "streamOptimized") {
					if err := receivePrefix(t.Context(), out, -1, d.Want); err != nil {
						t.Errorf("in one pass: %v", err)
					}
				}
			})
		}
	}
}

// qemu-img creates the top layer: a delta in the format of VMware Workstation.
func TestReadsADeltaOfQEMU(t *testing.T) {
	requireProgram(t, "qemu-img")
	d := writeChain(t, vmdktest.Chain{Seed: 8, Layers: []vmdktest.Layer{{Format: vmdktest.Sparse, Sectors: vmdktest.Odd, Data: 0.5, Run: 3}}})
	top := filepath.Join(d.Folder, "top.vmdk")
	for _, args := range [][]string{
		{"qemu-img", "create", "-q", "-f", "vmdk", "-b", d.Name, "-F", "vmdk", top},
		{"qemu-io", "-f", "vmdk", "-c", "write -P 0xAB 1M 100k", "-c", "write -P 0xCD 70k 512", top},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = d.Folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	raw, err := vmdktest.QEMU(t.Context(), top, filepath.Join(d.Folder, "raw"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	src := openDisk(t, d.Folder, "top.vmdk")
	whole := disk.Range{Len: raw.Size()}
	if src.Size() != raw.Size() || string(readRange(t, src, whole)) != string(readRange(t, raw, whole)) {
		t.Errorf("content of %d bytes differs from the %d bytes that qemu-img reads", src.Size(), raw.Size())
	}
	if got := readRange(t, src, disk.Range{Off: 70 << 10, Len: 2}); got[0] != 0xCD || got[1] != 0xCD {
		t.Errorf("data written to the delta reads as %x, want cdcd", got)
	}
}
