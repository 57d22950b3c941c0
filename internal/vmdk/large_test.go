package vmdk

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// largeSE is an seSparse file of a disk of 62 TiB whose content is computed on each read. Every
// hundredth table exists and is full, so 1 % of the disk is data.
type largeSE struct{ bytesSource }

const (
	largeCapacity  = 62 << 40
	largeTables    = largeCapacity/(16<<20)/100 + 1 // number of tables that exist
	largeDirectory = 1 << 20
	largeTableAt   = 64 << 20
	largeGrains    = largeTableAt + largeTables*32<<10
)

func newLargeSE() largeSE {
	b := make([]byte, 1024)
	putUints(b, 0, uint64(0xCAFEBABE), uint64(0x200000001), uint64(largeCapacity/512), uint64(8), uint64(64))
	putUints(b, 80, uint64(1), uint64(1))
	putUints(b, 128, uint64(largeDirectory/512), uint64(1), uint64(largeTableAt/512), uint64(1))
	putUints(b, 192, uint64(largeGrains/512), uint64(1))
	putUints(b, 512, uint64(0xCAFECAFE))
	return largeSE{b}
}

func (l largeSE) Open(_ context.Context, name string) (disk.Source, error) {
	if name != "large" {
		return nil, fault.New(fault.NotFound, "%s is not there", name)
	}
	return l, nil
}

func (l largeSE) Size() int64 { return largeGrains + largeTables*16<<20 }

func (l largeSE) ReadAt(_ context.Context, p []byte, off int64) error {
	clear(p)
	switch {
	case off < 1024:
		copy(p, l.bytesSource[off:])
	case off < largeTableAt:
		for i := range len(p) / 8 {
			if n := (off-largeDirectory)/8 + int64(i); n%100 == 0 {
				binary.LittleEndian.PutUint64(p[i*8:], uint64(n/100)|1<<60)
			}
		}
	case off < largeGrains:
		first := (off - largeTableAt) / 8
		for i := range len(p) / 8 {
			number := uint64(first + int64(i))
			binary.LittleEndian.PutUint64(p[i*8:], 3<<60|number>>12|number&0xfff<<48)
		}
	}
	return nil
}

// Memory use does not grow with the size of the disk. The test lists the extents of the largest disk
// like blockcopy and reads samples of it.
func TestMemoryForADiskOf62TiB(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	d, err := Open(t.Context(), newLargeSE(), "large", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const window, ceiling = 4 << 30, 128 << 20 // HeapInuse includes garbage that is not collected yet
	runtime.GC()                               // frees the garbage of other tests
	var peak uint64
	var stats runtime.MemStats
	buf := make([]byte, 2<<20)
	for off := int64(0); off < d.Size(); off += window {
		if _, err := d.Extents(t.Context(), disk.Range{Off: off, Len: min(window, d.Size()-off)}); err != nil {
			t.Fatal(err)
		}
		if off%(256<<30) == 0 {
			if err := d.ReadAt(t.Context(), buf, off); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&stats)
			peak = max(peak, stats.HeapInuse)
		}
	}
	if peak > ceiling {
		t.Errorf("%d MiB of heap in use, want at most %d", peak>>20, ceiling>>20)
	}
	var data int64
	first := disk.Range{Len: 1600 << 20}
	if err := d.Runs(t.Context(), first, func(r Run) bool {
		if r.Kind == Data {
			data += r.Len
		}
		return true
	}); err != nil || data != 16<<20 {
		t.Errorf("%d bytes of data in %v, want %d, error %v", data, first, 16<<20, err)
	}
}
