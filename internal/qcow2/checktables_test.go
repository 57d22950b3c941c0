package qcow2

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
)

// twoTableSize is the size of a disk with two L2 tables. The second table has few entries.
const twoTableSize = 520<<20 + 512

// newFinishedImage creates a finished image with a few clusters of data.
func newFinishedImage(t testing.TB, size int64) (path string, im *Image) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "disk.qcow2")
	im, err := Create(path, size, Options{})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 80 {
		if err := im.WriteAt(t.Context(), []byte("data"), rnd.Int64N(size-4)); err != nil {
			t.Fatal(err)
		}
	}
	if err := im.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	return path, im
}

// damagedFile is a file with some bytes replaced. It counts the bytes that are read.
type damagedFile struct {
	disk.Source
	bytes map[int64]byte
	read  int64
}

func openDamaged(t *testing.T, path string) *damagedFile {
	t.Helper()
	file, err := rawfile.OpenSource(path, rawfile.SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &damagedFile{Source: file, bytes: map[int64]byte{}}
}

func (f *damagedFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	err := f.Source.ReadAt(ctx, p, off)
	for at, b := range f.bytes {
		if at >= off && at < off+int64(len(p)) {
			p[at-off] = b
		}
	}
	f.read += int64(len(p))
	return err
}

// setBytes replaces the bytes at off.
func (f *damagedFile) setBytes(off int64, b []byte) {
	for i := range b {
		f.bytes[off+int64(i)] = b[i]
	}
}

func (f *damagedFile) checkTables(t *testing.T, size int64) (*Tables, error) {
	t.Helper()
	src, err := openChain(f, "disk.qcow2", SourceOptions{})
	if err != nil {
		return nil, err
	}
	return src.CheckTables(t.Context(), size)
}

// CheckTables returns the mapping that Finish wrote. It reads the tables once, and no data of the
// disk.
func TestCheckTables(t *testing.T) {
	for _, size := range []int64{512, 1 << 20, twoTableSize, 100 << 30} {
		path, im := newFinishedImage(t, size)
		file := openDamaged(t, path)
		tables, err := file.checkTables(t, size)
		if err != nil {
			t.Fatal(err)
		}
		for off := int64(0); off < size; off += max(clusterSize, size/20000/clusterSize*clusterSize) {
			if at, held := tables.At(off); held != im.used.Has(off) || held && at != im.data.Off+off {
				t.Fatalf("byte %d is at %#x, held %v, want held %v", off, at, held, im.used.Has(off))
			}
		}
		most := im.l2.Off + im.l1.Len + rawfile.Align // reads the L1 table twice: to find the L2 tables, and to compare it
		for i := range im.tableCount() {
			if im.tableUsed(i) {
				most += clusterSize
			}
		}
		if file.read > most {
			t.Errorf("%d bytes were read, want at most the %d bytes of tables (disk of %d bytes)", file.read, most, size)
		}
	}
}

// CheckTables reads at most 16 MiB of the tables of a full disk of 100 GiB.
func TestCheckTablesOfAFullDisk(t *testing.T) {
	const size = 100 << 30
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	im, err := Create(path, size, Options{})
	if err != nil {
		t.Fatal(err)
	}
	im.used.Set(disk.Range{Len: size}) // marks the whole disk as written
	if err := im.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := openDamaged(t, path)
	if _, err := file.checkTables(t, size); err != nil || file.read > 16<<20 {
		t.Errorf("%d bytes were read, want at most %d, error %v", file.read, 16<<20, err)
	}
}

// CheckTables finds any flipped bit in the header and in the tables.
func TestDamagedTablesAreFound(t *testing.T) {
	path, im := newFinishedImage(t, twoTableSize)
	rnd, tried := rand.New(rand.NewPCG(2, 2)), 0
	flip := func(off int64, was byte) {
		file := openDamaged(t, path)
		file.bytes[off] = was ^ 1<<rnd.IntN(8)
		if _, err := file.checkTables(t, twoTableSize); !fault.Is(err, fault.Corrupt) && !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
			t.Errorf("flipped bit in byte %#x, in the table at %#x: got %v", off, off&^(clusterSize-1), err)
		}
		tried++
	}
	some := func(b block) error {
		for i, v := range b.data {
			if v != 0 && rnd.IntN(4) == 0 || rnd.IntN(2000) == 0 {
				flip(b.off+int64(i), v)
			}
		}
		return nil
	}
	first := append(im.newHeader().encode(), make([]byte, clusterSize-headerV3)...)
	for i := range int64(headerV3) {
		flip(i, first[i])
	}
	if err := im.eachBlock(some); err != nil {
		t.Fatal(err)
	}
	if err := some(block{0, "header", first}); err != nil {
		t.Fatal(err)
	}
	if tried < 300 {
		t.Errorf("only %d bytes were tried, want at least 300", tried)
	}
}

// CheckTables finds changed mappings. If a mapping and its refcount are both removed or both added, the
// image is valid, and the result shows the change.
func TestChangedMappings(t *testing.T) {
	path, im := newFinishedImage(t, twoTableSize)
	mapped := im.used.Next(disk.Range{Len: twoTableSize}).Off
	hole := mapped + clusterSize
	for im.used.Has(hole) {
		hole += clusterSize
	}
	entry := func(off int64) int64 { return im.l2.Off + off/clusterSize*8 }
	count := func(off int64) int64 { return im.refBlocks.Off + (im.data.Off+off)/clusterSize*2 }
	mapping := func(off int64) []byte {
		return binary.BigEndian.AppendUint64(nil, uint64(im.data.Off+off)|copied)
	}
	for name, c := range map[string]struct {
		change func(*damagedFile)
		found  bool
	}{
		"to another cluster": {func(f *damagedFile) {
			f.setBytes(entry(mapped), mapping(hole))
			f.setBytes(count(hole), []byte{0, 1})
			f.setBytes(count(mapped), []byte{0, 0})
		}, true},
		"twice":      {func(f *damagedFile) { f.setBytes(entry(hole), mapping(mapped)) }, true},
		"to zeros":   {func(f *damagedFile) { f.setBytes(entry(mapped), []byte{0, 0, 0, 0, 0, 0, 0, 1}) }, true},
		"not copied": {func(f *damagedFile) { f.setBytes(entry(mapped), []byte{0}) }, true},
		"gone":       {func(f *damagedFile) { f.setBytes(entry(mapped), make([]byte, 8)) }, true},
		"new":        {func(f *damagedFile) { f.setBytes(entry(hole), mapping(hole)) }, true},
		"gone, not counted": {func(f *damagedFile) {
			f.setBytes(entry(mapped), make([]byte, 8))
			f.setBytes(count(mapped), []byte{0, 0})
		}, false},
		"new, counted":       {func(f *damagedFile) { f.setBytes(entry(hole), mapping(hole)); f.setBytes(count(hole), []byte{0, 1}) }, false},
		"two tables swapped": {func(f *damagedFile) { f.swapUint64(t, im.l1.Off, im.l1.Off+8) }, true},
		"table not listed":   {func(f *damagedFile) { f.setBytes(im.l1.Off+8, make([]byte, 8)) }, true},
	} {
		file := openDamaged(t, path)
		c.change(file)
		tables, err := file.checkTables(t, twoTableSize)
		if fault.Is(err, fault.Corrupt) != c.found || !c.found && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		_, first := tables.At(mapped)
		_, second := tables.At(hole)
		if first != (name != "gone, not counted") || second != (name == "new, counted") {
			t.Errorf("%s: mapped is held: %v, hole is held: %v", name, first, second)
		}
	}
}

// swapUint64 exchanges the 8 bytes at a and at b.
func (f *damagedFile) swapUint64(t *testing.T, a, b int64) {
	t.Helper()
	one, two := make([]byte, 8), make([]byte, 8)
	if err := f.ReadAt(t.Context(), one, a); err != nil {
		t.Fatal(err)
	}
	if err := f.ReadAt(t.Context(), two, b); err != nil || bytes.Equal(one, two) {
		t.Fatalf("got %x and %x, want different bytes, error %v", one, two, err)
	}
	f.setBytes(a, two)
	f.setBytes(b, one)
}

// CheckTables refuses images of other writers.
func TestCheckTablesOfQEMUImages(t *testing.T) {
	skipWithout(t, "qemu-img")
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	qemuImg(t, "create", "-q", "-f", "qcow2", path, "1G")
	if _, err := openDamaged(t, path).checkTables(t, 1<<30); !fault.Is(err, fault.Corrupt) {
		t.Errorf("got %v, want a corrupt error", err)
	}
}

// FuzzTables replaces bytes of a small image. CheckTables refuses the image, or its result matches the content
// that Source reads.
func FuzzTables(f *testing.F) {
	const size = 2 << 20
	path, im := newFinishedImage(f, size)
	image := make(memory, im.data.End())
	file, err := rawfile.OpenSource(path, rawfile.SourceOptions{})
	if err == nil {
		err = file.ReadAt(f.Context(), image, 0)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		f.Fatal(err)
	}
	for _, r := range []disk.Range{im.l2, im.l1, im.refTable, im.refBlocks} {
		f.Add(uint32(r.Off), []byte{0, 0, 0, 0, 0, 0, 0, 0})
		f.Add(uint32(r.Off+5), []byte{17})
	}
	f.Fuzz(func(t *testing.T, off uint32, b []byte) {
		damaged := bytes.Clone(image)
		copy(damaged[min(int64(off), im.data.Off):im.data.Off], b)
		src, err := openImage(memory(damaged))
		var tables *Tables
		if err == nil {
			tables, err = src.CheckTables(t.Context(), size)
		}
		if err != nil {
			checkFault(t, err)
			return
		}
		for at := int64(0); at < size; at += clusterSize {
			got, want := make([]byte, clusterSize), make([]byte, clusterSize)
			if place, held := tables.At(at); held {
				copy(want, damaged[place:])
			}
			if err := src.ReadAt(t.Context(), got, at); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("content of the cluster at %#x differs, error %v", at, err)
			}
		}
	})
}
