package qcow2

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/test/lane"
)

// changedDisk is a disk with different bytes in some ranges.
type changedDisk struct {
	disk.Source
	changed []disk.Range
}

func (d changedDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := d.Source.ReadAt(ctx, p, off); err != nil {
		return err
	}
	for _, r := range d.changed {
		both := r.Intersect(disk.Range{Off: off, Len: int64(len(p))})
		for i := both.Off; i < both.End(); i++ {
			p[i-off] ^= 0xff
		}
	}
	return nil
}

// Extents reports the changed ranges as data, and the extents of the disk in between.
func (d changedDisk) Extents(ctx context.Context, r disk.Range) (all []disk.Extent, err error) {
	at := r.Off
	for _, c := range append(slices.Clone(d.changed), disk.Range{Off: r.End(), Len: 1}) {
		if before := r.Intersect(disk.Range{Off: at, Len: c.Off - at}); !before.Empty() {
			extents, err := d.Source.Extents(ctx, before)
			if err != nil {
				return nil, err
			}
			all = append(all, extents...)
		}
		if c = c.Intersect(r); !c.Empty() {
			all, at = append(all, disk.Extent{Range: c}), c.End()
		}
	}
	return all, nil
}

// qemu-img check accepts the tables, and qemu-img reads the changed disk. The cases change nothing, both ends of
// the disk, and several L2 tables.
func TestWriteAboveIsReadableByQEMU(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	skipWithout(t, "qemu-img")
	const size = 1200<<20 + 512 // three L2 tables, and one sector in the last cluster
	base := disk.NewSparsePattern(size, 0.001, 9)
	raw := writeRaw(t, base)
	for name, changed := range map[string][]disk.Range{
		"nothing":     nil,
		"first byte":  {{Off: 0, Len: 1}},
		"last sector": {{Off: size - 512, Len: 512}},
		"scattered":   {{Off: 0, Len: 1}, {Off: 4096, Len: 8192}, {Off: 65_000, Len: 5000}, {Off: 600 << 20, Len: 1}, {Off: 1100 << 20, Len: 3 << 20}, {Off: size - 512, Len: 512}},
		"much":        {{Off: 1 << 20, Len: 40 << 20}},
	} {
		if name != "nothing" && name != "scattered" && !lane.Slow {
			continue // "scattered" changes both ends of the disk too
		}
		t.Run(name, func(t *testing.T) {
			want := changedDisk{base, changed}
			path := filepath.Join(t.TempDir(), "above.qcow2")
			if err := WriteAbove(t.Context(), path, Backing{raw, "raw"}, want, changed); err != nil {
				t.Fatal(err)
			}
			checkWithQEMU(t, path, want)
			src, err := OpenSource(path, SourceOptions{Backing: OpenFile})
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			if len(src.Layers()) != 2 {
				t.Errorf("layers %v", src.Layers())
			}
		})
	}
}

// If the refcounts need more than one block, they include the refcount blocks.
func TestWriteAboveCountsItsRefcountBlocks(t *testing.T) {
	for clusters := int64(32_700); clusters < 32_800; clusters++ {
		a := newOverlayWriter(disk.NewSparsePattern(3<<30, 0.0001, 9), []disk.Range{{Len: clusters * clusterSize}})
		a.dataClusters = clusters
		a.placeRefcounts()
		if counted := a.blocks * countsPerBlock; counted < a.end/clusterSize || counted-countsPerBlock >= a.end/clusterSize {
			t.Fatalf("%d clusters in the file, %d blocks of refcounts", a.end/clusterSize, a.blocks)
		}
		if a.refTable != a.refBlocks+a.blocks*clusterSize {
			t.Fatalf("%d blocks of refcounts end at %d", a.blocks, a.refTable)
		}
	}
}

// trimmedDisk is a disk with zeros in some ranges.
type trimmedDisk struct {
	disk.Source
	trimmed []disk.Range
}

func (d trimmedDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := d.Source.ReadAt(ctx, p, off); err != nil {
		return err
	}
	for _, r := range d.trimmed {
		if both := r.Intersect(disk.Range{Off: off, Len: int64(len(p))}); !both.Empty() {
			clear(p[both.Off-off : both.End()-off])
		}
	}
	return nil
}

// Trimmed ranges hide the data of the backing file and have no clusters in the image. The image holds only
// tables and the data at the edges of the ranges.
func TestWriteAboveStoresNoZeros(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	skipWithout(t, "qemu-img")
	const size = 600<<20 + 512 // two L2 tables
	base := disk.NewSparsePattern(size, 0.2, 7)
	raw := writeRaw(t, base)
	for name, c := range map[string]struct {
		trimmed []disk.Range
		most    int64 // maximum number of clusters with data
	}{
		"whole clusters": {[]disk.Range{{Off: 1 << 20, Len: 580 << 20}}, 0},
		"to the end":     {[]disk.Range{{Off: 500 << 20, Len: 100<<20 + 512}}, 0},
		"edges":          {[]disk.Range{{Off: 4096, Len: 3 << 20}, {Off: 550<<20 + 512, Len: 1 << 20}}, 4},
		"less than one":  {[]disk.Range{{Off: 70_000, Len: 50_000}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			want := trimmedDisk{base, c.trimmed}
			path := filepath.Join(t.TempDir(), "above.qcow2")
			if err := WriteAbove(t.Context(), path, Backing{raw, "raw"}, want, c.trimmed); err != nil {
				t.Fatal(err)
			}
			checkWithQEMU(t, path, want)
			a := newOverlayWriter(want, c.trimmed)
			a.dataClusters = c.most
			a.placeRefcounts()
			if info, err := os.Stat(path); err != nil || info.Size() > a.end {
				t.Errorf("the file has %d bytes, want at most %d, with %d clusters of data: %v", info.Size(), a.end, c.most, err)
			}
			checkAbove(t, path, base, want, c.trimmed)
		})
	}
}

// checkAbove requires that the image above base has the content of want in the changed ranges, and clusters only
// there.
func checkAbove(t *testing.T, path string, base, want disk.Source, changed []disk.Range) {
	t.Helper()
	src, err := OpenOver(path, base)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	own, err := src.Own(t.Context(), disk.Range{Len: src.Size()})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range own {
		for c := r.Off / clusterSize; c*clusterSize < r.End(); c++ {
			cluster := disk.Range{Off: c * clusterSize, Len: clusterSize}
			if !slices.ContainsFunc(changed, func(r disk.Range) bool { return !r.Intersect(cluster).Empty() }) {
				t.Fatalf("cluster %d is in the image, but did not change", c)
			}
		}
	}
	for _, r := range changed {
		got, expected := make([]byte, min(r.Len, 2<<20)), make([]byte, min(r.Len, 2<<20))
		if err := errors.Join(src.ReadAt(t.Context(), got, r.Off), want.ReadAt(t.Context(), expected, r.Off)); err != nil || !bytes.Equal(got, expected) {
			t.Errorf("content of %v differs, error %v", r, err)
		}
	}
}

// FuzzAbove writes a fuzzed disk above another one and reads it back.
func FuzzAbove(f *testing.F) {
	f.Add([]byte("above"), []byte{1, 0, 2, 0, 200, 1}, uint16(3))
	f.Add(make([]byte, 300), []byte{0, 9, 5, 0}, uint16(700))
	f.Add([]byte{0, 0, 0}, []byte{255, 255}, uint16(8191))
	f.Fuzz(func(t *testing.T, data, edits []byte, pages uint16) {
		const page = 4096
		was := make(memory, (int64(pages)%(40*16)+1)*page)
		for i := range was {
			was[i] = byte(i / page)
		}
		now, changed := bytes.Clone(was), []disk.Range{}
		for at := int64(0); len(edits) >= 2; edits = edits[2:] {
			at += int64(edits[0]) * page / 2
			r := disk.Range{Off: at, Len: int64(edits[1])*page + 1}.Intersect(disk.Range{Len: int64(len(now))})
			if r.Empty() {
				break
			}
			for i := r.Off; i < r.End(); i++ {
				now[i] = 0
				if len(data) > 0 {
					now[i] = data[i%int64(len(data))]
				}
			}
			changed, at = append(changed, r), r.End()
		}
		path := filepath.Join(t.TempDir(), "above.qcow2")
		if err := WriteAbove(t.Context(), path, Backing{"x", "raw"}, memory(now), changed); err != nil {
			t.Fatal(err)
		}
		src, err := OpenOver(path, memory(was))
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		got := make([]byte, len(now))
		if err := src.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got, now) {
			t.Fatalf("content differs, error %v", err)
		}
	})
}

func TestWriteAboveRefuses(t *testing.T) {
	src := disk.NewSparsePattern(1<<20, 0.5, 1)
	path := filepath.Join(t.TempDir(), "above.qcow2")
	for _, b := range []Backing{{"", "raw"}, {"x", "vmdk"}} {
		if err := WriteAbove(t.Context(), path, b, src, nil); !fault.Is(err, fault.Invalid) {
			t.Errorf("backing file %v: got %v, want an invalid error", b, err)
		}
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := WriteAbove(stopped, path, Backing{"x", "raw"}, src, []disk.Range{{Len: 1 << 20}}); err == nil {
		t.Error("WriteAbove ignores the canceled context")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("WriteAbove leaves a file after an error")
	}
	if err := os.WriteFile(path, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WriteAbove(t.Context(), path, Backing{"x", "raw"}, src, nil); err == nil {
		t.Error("WriteAbove overwrites an existing file")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("the existing file has %q, want %q, error %v", text, "mine", err)
	}
}

// OpenAbove reads the changed ranges as written and the rest as zeros. The backing file need not
// exist.
func TestOpenAboveReadsNoBackingFile(t *testing.T) {
	const size = 4<<20 + 512
	changed := []disk.Range{{Off: 1 << 20, Len: 1 << 20}, {Off: 4 << 20, Len: 512}}
	want := changedDisk{disk.NewPattern(size), changed}
	path := filepath.Join(t.TempDir(), "above.qcow2")
	if err := WriteAbove(t.Context(), path, Backing{"gone.qcow2", "qcow2"}, want, changed); err != nil {
		t.Fatal(err)
	}
	src, err := OpenAbove(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	got, all := make([]byte, size), make([]byte, size)
	if err := errors.Join(src.ReadAt(t.Context(), got, 0), want.ReadAt(t.Context(), all, 0)); err != nil || src.Size() != size {
		t.Fatalf("size %d, want %d, error %v", src.Size(), size, err)
	}
	expected := make([]byte, size)
	for _, r := range changed {
		copy(expected[r.Off:r.End()], all[r.Off:r.End()])
	}
	if !bytes.Equal(got, expected) {
		t.Error("content differs")
	}
	if err := os.Truncate(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	if src, err := OpenAbove(path); err == nil {
		if err := src.ReadAt(t.Context(), got, 0); err == nil && bytes.Equal(got, expected) {
			t.Error("a truncated image reads without an error")
		}
		src.Close()
	}
}
