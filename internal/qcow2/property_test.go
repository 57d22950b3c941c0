package qcow2

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/test/lane"
)

// TestWriterAndReaderAgree writes disks of random sizes in random order, with resumes. The image passes
// qemu-img check, and Source returns every byte in requests of any size. Zero extents contain only zeros.
func TestWriterAndReaderAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	seeds := map[bool]uint64{false: 12, true: 24}[lane.Slow]
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 41))
		size := randomSize(rnd)
		path := filepath.Join(t.TempDir(), "disk.qcow2")
		im, err := Create(path, size, Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := make(memory, size)
		for range 1 + rnd.IntN(3) {
			writeRandomPieces(t, rnd, im, want)
			if rnd.IntN(3) == 0 {
				if err := im.Close(); err != nil {
					t.Fatal(err)
				}
				if im, err = Open(path, Options{Size: size}); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		}
		if err := errors.Join(im.Finish(t.Context()), im.Close()); err != nil {
			t.Fatal(err)
		}
		checkWithQEMU(t, path, want)
		compareRandomReads(t, rnd, seed, openDirect(t, path), want)
	}
}

// randomSize returns a disk size in whole sectors, often near a multiple of the cluster size.
func randomSize(rnd *rand.Rand) int64 {
	sectors := 1 + rnd.Int64N(12<<20/disk.SectorSize)
	if rnd.IntN(3) == 0 {
		sectors = (1+rnd.Int64N(100))*clusterSize/disk.SectorSize + rnd.Int64N(3) - 1
	}
	return sectors * disk.SectorSize
}

// compareRandomReads compares random ranges, then the extents, then the whole disk.
func compareRandomReads(t *testing.T, rnd *rand.Rand, seed uint64, src *Source, want memory) {
	t.Helper()
	defer src.Close()
	for range 100 {
		off := rnd.Int64N(want.Size())
		p := make([]byte, 1+rnd.Int64N(min(want.Size()-off, 1<<rnd.IntN(24))))
		if err := src.ReadAt(t.Context(), p, off); err != nil || !bytes.Equal(p, want[off:off+int64(len(p))]) {
			t.Fatalf("seed %d: %d bytes at %d of %d differ (%v)", seed, len(p), off, want.Size(), err)
		}
	}
	all := disk.Range{Len: want.Size()}
	extents, err := src.Extents(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	checkExtents(t, src, all, extents)
	got, err := readAll(t, src)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("seed %d: %d bytes differ (%v)", seed, want.Size(), err)
	}
}
