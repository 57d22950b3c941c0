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

// Each recipe must read as its overlay: as a whole, by its extents, in ranges, and in one pass if it is a
// stream. Package vmdktest compares the overlay with what qemu-img reads.
func TestRecipesReadAsTheOverlay(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, r := range vmdktest.Recipes() {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			d := write(t, r.Chain)
			src := open(t, d.Folder, d.Name)
			if err := d.Want.Compare(t.Context(), src); err != nil {
				t.Error(err)
			}
			if err := zerosAreZeros(t.Context(), src, d.Want); err != nil {
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
		if string(reads(t, src, at)) != string(reads(t, want, at)) {
			t.Fatalf("%v reads wrong", at)
		}
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

// Files that qemu-img wrote from known content: another writer than ours.
func TestReadsWhatQEMUWrites(t *testing.T) {
	requires(t, "qemu-img")
	for _, sectors := range []int64{vmdktest.Odd, 2 * 65536} {
		for _, options := range []string{
			"subformat=monolithicSparse", "subformat=monolithicSparse,zeroed_grain=on", "subformat=monolithicSparse,compat6",
			"subformat=monolithicFlat", "subformat=twoGbMaxExtentSparse", "subformat=twoGbMaxExtentFlat", "subformat=streamOptimized",
		} {
			t.Run(fmt.Sprintf("%s of %d sectors", options, sectors), func(t *testing.T) {
				t.Parallel()
				d := write(t, vmdktest.Chain{Seed: 7, Layers: []vmdktest.Layer{{Sectors: sectors, Data: 0.4, Run: 3}}})
				out := filepath.Join(t.TempDir(), "q.vmdk")
				cmd := exec.Command("qemu-img", "convert", "-f", "raw", "-O", "vmdk", "-o", options, filepath.Join(d.Folder, "disk-flat.vmdk"), out)
				if words, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("qemu-img: %v: %s", err, words)
				}
				src := open(t, filepath.Dir(out), filepath.Base(out))
				if err := d.Want.Compare(t.Context(), src); err != nil {
					t.Error(err)
				}
				if err := zerosAreZeros(t.Context(), src, d.Want); err != nil {
					t.Error(err)
				}
				if strings.HasSuffix(options, "streamOptimized") {
					if err := receive(t.Context(), out, -1, d.Want); err != nil {
						t.Errorf("in one pass: %v", err)
					}
				}
			})
		}
	}
}

// A chain whose top qemu-img made: a delta of Workstation's kind.
func TestReadsADeltaThatQEMUWrites(t *testing.T) {
	requires(t, "qemu-img")
	d := write(t, vmdktest.Chain{Seed: 8, Layers: []vmdktest.Layer{{Format: vmdktest.Sparse, Sectors: vmdktest.Odd, Data: 0.5, Run: 3}}})
	top := filepath.Join(d.Folder, "top.vmdk")
	for _, args := range [][]string{
		{"qemu-img", "create", "-q", "-f", "vmdk", "-b", d.Name, "-F", "vmdk", top},
		{"qemu-io", "-f", "vmdk", "-c", "write -P 0xAB 1M 100k", "-c", "write -P 0xCD 70k 512", top},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = d.Folder
		if words, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, words)
		}
	}
	raw, err := vmdktest.QEMU(t.Context(), top, filepath.Join(d.Folder, "raw"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	src := open(t, d.Folder, "top.vmdk")
	whole := disk.Range{Len: raw.Size()}
	if src.Size() != raw.Size() || string(reads(t, src, whole)) != string(reads(t, raw, whole)) {
		t.Errorf("%d bytes differ from the %d that qemu-img reads", src.Size(), raw.Size())
	}
	if got := reads(t, src, disk.Range{Off: 70 << 10, Len: 2}); got[0] != 0xCD || got[1] != 0xCD {
		t.Errorf("what was written to the delta reads as %x", got)
	}
}
