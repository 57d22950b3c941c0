package qcow2

import (
	"encoding/binary"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

func TestLayoutRegionsCoverDisk(t *testing.T) {
	sizes := []int64{512, clusterSize, clusterSize + 512, 512 << 20, 512<<20 + 512, 2 << 30, 100 << 30, 6 << 40, 62 << 40, 1 << 50, 2 << 50}
	for _, size := range sizes {
		l, err := newLayout(size)
		if err != nil {
			t.Errorf("size %d: %v", size, err)
			continue
		}
		end := int64(clusterSize)
		for _, r := range []disk.Range{l.refTable, l.refBlocks, l.l1, l.l2, l.data} {
			if r.Off < end || r.Off%clusterSize != 0 || r.Len%clusterSize != 0 || r.Empty() {
				t.Errorf("size %d: region %v follows offset %d", size, r, end)
			}
			end = r.End()
		}
		blocks := l.refBlocks.Len / clusterSize
		if blocks*countsPerBlock*clusterSize < end || l.refTable.Len/8 < blocks {
			t.Errorf("size %d: %d refcount blocks in table %v do not cover %d bytes", size, blocks, l.refTable, end)
		}
		if l.data.Len < size || l.tableCount()*entriesPerL2 < l.clusters || l.l1.Len/8 < l.tableCount() {
			t.Errorf("size %d: tables too small: %+v", size, l)
		}
		if l.blockRange(blocks-1).Empty() || l.tableRange(l.tableCount()-1).Empty() {
			t.Errorf("size %d: the last table is unused", size)
		}
	}
}

func TestNote(t *testing.T) {
	for _, data := range []int64{0, 2 << 20} { // as created, and grown
		b := noteOf(t, 6<<40, data)
		if l, ok := parseNote(b); !ok || l != mustLayout(t, 6<<40, data) {
			t.Errorf("got %+v, %v", l, ok)
		}
		for i := range noteBytes(b) {
			b[i] ^= 4
			if _, ok := parseNote(b); ok {
				t.Errorf("parseNote accepts a flipped bit in byte %d", i)
			}
			b[i] ^= 4
		}
	}
}

// noteOf returns the note of a disk whose data begins at data, or at the default offset if data is 0.
func noteOf(t testing.TB, size, data int64) []byte { return encodeNote(mustLayout(t, size, data)) }

// noteBytes returns the note in b without the zeros after it.
func noteBytes(b []byte) []byte {
	if binary.BigEndian.Uint32(b[len(noteText):]) == noteVersionMoved {
		return b[:len(noteText)+24]
	}
	return b[:len(noteText)+16]
}

func mustLayout(t testing.TB, size, data int64) layout {
	t.Helper()
	l, err := newLayout(size)
	if err == nil && data > 0 {
		l, err = layoutAt(size, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The tables of a grown disk are after its data, which keeps its offset.
func TestLayoutOfAGrownDisk(t *testing.T) {
	for _, c := range []struct{ from, to int64 }{{512, 20 << 30}, {1 << 30, 100 << 30}, {100 << 30, 6 << 40}, {6 << 40, 62 << 40}, {1 << 50, 2 << 50}} {
		data := mustLayout(t, c.from, 0).data.Off
		l := mustLayout(t, c.to, data)
		end := l.data.End()
		for _, r := range []disk.Range{l.refTable, l.refBlocks, l.l1, l.l2} {
			if r.Off < end || r.Off%clusterSize != 0 || r.Len%clusterSize != 0 || r.Empty() {
				t.Errorf("%d to %d: region %v follows offset %d", c.from, c.to, r, end)
			}
			end = r.End()
		}
		blocks := l.refBlocks.Len / clusterSize
		if l.data.Off != data || l.end() != end || blocks*countsPerBlock*clusterSize < end || l.refTable.Len/8 < blocks || l.tableCount()*entriesPerL2 < l.clusters {
			t.Errorf("%d to %d: tables too small or at the wrong offset: %+v", c.from, c.to, l)
		}
		if found, err := finishedLayout(l.newHeader()); err != nil || found != l {
			t.Errorf("%d to %d: layout from the header is %+v, want %+v, error %v", c.from, c.to, found, l, err)
		}
	}
	for _, data := range []int64{-1 << 20, 1 << 19, 1 << 40} {
		if l, err := layoutAt(20<<30, data); !fault.Is(err, fault.Corrupt) {
			t.Errorf("data at %d: %+v, %v", data, l, err)
		}
	}
}
