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

// proofSize needs two L2 tables, of which the second maps little.
const proofSize = 520<<20 + 512

// finished makes a finished image of a few clusters, and returns its writer.
func finished(t testing.TB, size int64) (path string, im *Image) {
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

// damaged is a file of which some bytes read as something else. It counts what is read.
type damaged struct {
	disk.Source
	bytes map[int64]byte
	read  int64
}

func openDamaged(t *testing.T, path string) *damaged {
	t.Helper()
	file, err := rawfile.OpenSource(path, rawfile.SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &damaged{Source: file, bytes: map[int64]byte{}}
}

func (f *damaged) ReadAt(ctx context.Context, p []byte, off int64) error {
	err := f.Source.ReadAt(ctx, p, off)
	for at, b := range f.bytes {
		if at >= off && at < off+int64(len(p)) {
			p[at-off] = b
		}
	}
	f.read += int64(len(p))
	return err
}

// put replaces a number.
func (f *damaged) put(off int64, b []byte) {
	for i := range b {
		f.bytes[off+int64(i)] = b[i]
	}
}

func (f *damaged) check(t *testing.T, size int64) (*Tables, error) {
	t.Helper()
	src, err := openChain(f, "disk.qcow2", SourceOptions{})
	if err != nil {
		return nil, err
	}
	return src.CheckTables(t.Context(), size)
}

// What the tables say is what was written, and finding that out takes the tables, once, and
// nothing of the disk.
func TestCheckTables(t *testing.T) {
	for _, size := range []int64{512, 1 << 20, proofSize, 100 << 30} {
		path, im := finished(t, size)
		file := openDamaged(t, path)
		tables, err := file.check(t, size)
		if err != nil {
			t.Fatal(err)
		}
		for off := int64(0); off < size; off += max(clusterSize, size/20000/clusterSize*clusterSize) {
			if at, held := tables.At(off); held != im.used.Has(off) || held && at != im.data.Off+off {
				t.Fatalf("byte %d is at %#x, held %v", off, at, held)
			}
		}
		most := im.l2.Off + im.l1.Len + rawfile.Align // of it the L1 twice: to find the L2, and to compare
		for i := range im.tableCount() {
			if im.tableUsed(i) {
				most += clusterSize
			}
		}
		if file.read > most {
			t.Errorf("%d bytes were read of a disk of %d, at most %d are tables", file.read, size, most)
		}
	}
}

// With all of 100 GiB mapped that is 16 MiB.
func TestCheckTablesOfAFullDisk(t *testing.T) {
	const size = 100 << 30
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	im, err := Create(path, size, Options{})
	if err != nil {
		t.Fatal(err)
	}
	im.used.Set(disk.Range{Len: size}) // as if it had been written
	if err := im.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := openDamaged(t, path)
	if _, err := file.check(t, size); err != nil || file.read > 16<<20 {
		t.Errorf("%d bytes were read, %v", file.read, err)
	}
}

// Any bit that flips in anything that Finish wrote is found.
func TestDamagedTablesAreFound(t *testing.T) {
	path, im := finished(t, proofSize)
	rnd, tried := rand.New(rand.NewPCG(2, 2)), 0
	flip := func(off int64, was byte) {
		file := openDamaged(t, path)
		file.bytes[off] = was ^ 1<<rnd.IntN(8)
		if _, err := file.check(t, proofSize); !fault.Is(err, fault.Corrupt) && !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
			t.Errorf("byte %#x, in the table at %#x: %v", off, off&^(clusterSize-1), err)
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
		t.Errorf("only %d bytes were tried", tried)
	}
}

// A mapping that was changed is found where it leads elsewhere. One that is gone or new with
// its count is as good an image, and told.
func TestChangedMappings(t *testing.T) {
	path, im := finished(t, proofSize)
	mapped := im.used.Next(disk.Range{Len: proofSize}).Off
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
		change func(*damaged)
		found  bool
	}{
		"to another cluster": {func(f *damaged) {
			f.put(entry(mapped), mapping(hole))
			f.put(count(hole), []byte{0, 1})
			f.put(count(mapped), []byte{0, 0})
		}, true},
		"twice":              {func(f *damaged) { f.put(entry(hole), mapping(mapped)) }, true},
		"to zeros":           {func(f *damaged) { f.put(entry(mapped), []byte{0, 0, 0, 0, 0, 0, 0, 1}) }, true},
		"not copied":         {func(f *damaged) { f.put(entry(mapped), []byte{0}) }, true},
		"gone":               {func(f *damaged) { f.put(entry(mapped), make([]byte, 8)) }, true},
		"new":                {func(f *damaged) { f.put(entry(hole), mapping(hole)) }, true},
		"gone, not counted":  {func(f *damaged) { f.put(entry(mapped), make([]byte, 8)); f.put(count(mapped), []byte{0, 0}) }, false},
		"new, counted":       {func(f *damaged) { f.put(entry(hole), mapping(hole)); f.put(count(hole), []byte{0, 1}) }, false},
		"two tables swapped": {func(f *damaged) { f.swap(t, im.l1.Off, im.l1.Off+8) }, true},
		"table not listed":   {func(f *damaged) { f.put(im.l1.Off+8, make([]byte, 8)) }, true},
	} {
		file := openDamaged(t, path)
		c.change(file)
		tables, err := file.check(t, proofSize)
		if fault.Is(err, fault.Corrupt) != c.found || !c.found && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		_, first := tables.At(mapped)
		_, second := tables.At(hole)
		if first != (name != "gone, not counted") || second != (name == "new, counted") {
			t.Errorf("%s: the two are held %v and %v", name, first, second)
		}
	}
}

// swap exchanges two numbers.
func (f *damaged) swap(t *testing.T, a, b int64) {
	t.Helper()
	one, two := make([]byte, 8), make([]byte, 8)
	if err := f.ReadAt(t.Context(), one, a); err != nil {
		t.Fatal(err)
	}
	if err := f.ReadAt(t.Context(), two, b); err != nil || bytes.Equal(one, two) {
		t.Fatalf("%x and %x: %v", one, two, err)
	}
	f.put(a, two)
	f.put(b, one)
}

// An image that was written by others is none of ours to vouch for.
func TestCheckTablesOfOthers(t *testing.T) {
	requires(t, "qemu-img")
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	qemuImg(t, "create", "-q", "-f", "qcow2", path, "1G")
	if _, err := openDamaged(t, path).check(t, 1<<30); !fault.Is(err, fault.Corrupt) {
		t.Errorf("got %v", err)
	}
}

// FuzzTables replaces any bytes of a small image: what its tables are then found to say is
// what a reader of the disk gets, or they are refused.
func FuzzTables(f *testing.F) {
	const size = 2 << 20
	path, im := finished(f, size)
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
				t.Fatalf("cluster at %#x reads otherwise: %v", at, err)
			}
		}
	})
}
