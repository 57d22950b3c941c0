package vmdk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
)

func TestDiskConforms(t *testing.T) {
	for name, build := range map[string]func(*testing.T, disk.Source) Files{"flat": newFlatFiles, "COWD": newCOWDFiles} {
		t.Run(name, func(t *testing.T) {
			disktest.TestSource(t, func(t *testing.T, want disk.Source) disk.Source {
				d, err := Open(t.Context(), build(t, want), "disk.vmdk", Options{})
				if err != nil {
					t.Fatal(err)
				}
				return d
			})
		})
	}
}

// newFlatFiles returns a flat disk of two pieces of one file.
func newFlatFiles(t *testing.T, want disk.Source) Files {
	t.Helper()
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "disk-flat.vmdk"), want)
	sectors := want.Size() / disk.SectorSize
	cut := sectors - sectors/3
	lines := []string{fmt.Sprintf(`RW %d FLAT "disk-flat.vmdk" 0`, cut)}
	if cut < sectors {
		lines = append(lines, fmt.Sprintf(`RW %d FLAT "disk-flat.vmdk" %d`, sectors-cut, cut))
	}
	if err := os.WriteFile(filepath.Join(folder, "disk.vmdk"), descriptorText(1, NoParent, "", lines...), 0o644); err != nil {
		t.Fatal(err)
	}
	return Folder(folder)
}

// newCOWDFiles returns a COWD file with the data of want. Its grains are in reverse order.
func newCOWDFiles(t *testing.T, want disk.Source) Files {
	t.Helper()
	sectors := want.Size() / disk.SectorSize
	tables := (sectors + 4095) / 4096
	first := 4 + (tables*4+disk.SectorSize-1)/disk.SectorSize
	b := make([]byte, (first+tables*32)*disk.SectorSize)
	copy(b, "COWD")
	putUints(b, 4, uint32(1), uint32(3), uint32(sectors), uint32(1), uint32(4), uint32(tables))
	for i := range tables {
		putUints(b, int(4*disk.SectorSize+i*4), uint32(first+i*32))
	}
	for n := sectors - 1; n >= 0; n-- {
		r := disk.Range{Off: n * disk.SectorSize, Len: disk.SectorSize}
		if list, err := want.Extents(t.Context(), r); err != nil || list[0].Kind == disk.Zero {
			continue
		}
		putUints(b, int(first*disk.SectorSize+n*4), uint32(len(b)/disk.SectorSize))
		b = append(b, readRange(t, want, r)...)
	}
	return memFiles{"disk.vmdk": b}
}

// unreadFiles are files whose flat files must not be read. Their Extents can be called.
type unreadFiles struct {
	Files
	t *testing.T // test that a read fails
}

func (f unreadFiles) Open(ctx context.Context, name string) (disk.Source, error) {
	src, err := f.Files.Open(ctx, name)
	if err == nil && strings.HasSuffix(name, "-flat.vmdk") {
		src = unreadSource{src, f.t}
	}
	return src, err
}

type unreadSource struct {
	disk.Source
	t *testing.T // test that a read fails
}

func (s unreadSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	s.t.Errorf("%d bytes at %d of the flat file were read", len(p), off)
	return s.Source.ReadAt(ctx, p, off)
}

// Extents reports the holes of a flat file as zeros, and does not read the file.
func TestExtentsReportHoles(t *testing.T) {
	const size = 8 << 20
	want := disk.NewSparsePattern(size, 0.5, 3)
	d, err := Open(t.Context(), unreadFiles{newFlatFiles(t, want), t}, "disk.vmdk", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var zero, wantZero int64
	for _, e := range extentsOf(t, d) {
		if e.Kind == disk.Zero {
			zero += e.Len
		}
	}
	for _, e := range extentsOf(t, want) {
		if e.Kind == disk.Zero {
			wantZero += e.Len
		}
	}
	if zero != wantZero {
		t.Errorf("got %d bytes of holes, want %d", zero, wantZero)
	}
}

func TestShortHolesAreReportedAsData(t *testing.T) {
	l := extentList{off: 100}
	for _, x := range []struct {
		kind disk.Kind
		n    int64
	}{{disk.Zero, 10}, {disk.Data, 5}, {disk.Zero, 1000}, {disk.Zero, 1000}, {disk.Data, 7}, {disk.Data, 1}, {disk.Zero, minHole}, {disk.Data, 2}, {disk.Zero, 3}} {
		l.add(x.kind, x.n)
	}
	want := fmt.Sprint([]disk.Extent{
		{Range: disk.Range{Off: 100, Len: 10}, Kind: disk.Zero},
		{Range: disk.Range{Off: 110, Len: 2013}},
		{Range: disk.Range{Off: 2123, Len: minHole}, Kind: disk.Zero},
		{Range: disk.Range{Off: 2123 + minHole, Len: 2}},
		{Range: disk.Range{Off: 2125 + minHole, Len: 3}, Kind: disk.Zero},
	})
	if got := fmt.Sprint(l.finishList()); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
