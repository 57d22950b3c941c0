package qcow2

import (
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

func TestLayoutHasRoomForEverything(t *testing.T) {
	sizes := []int64{512, clusterSize, clusterSize + 512, 512 << 20, 512<<20 + 512, 2 << 30, 100 << 30, 6 << 40, 62 << 40, 1 << 50, 2 << 50}
	for _, size := range sizes {
		l, err := newLayout(size)
		if err != nil {
			t.Errorf("%d: %v", size, err)
			continue
		}
		end := int64(clusterSize)
		for _, r := range []disk.Range{l.refTable, l.refBlocks, l.l1, l.l2, l.data} {
			if r.Off < end || r.Off%clusterSize != 0 || r.Len%clusterSize != 0 || r.Empty() {
				t.Errorf("%d: region %v after %d", size, r, end)
			}
			end = r.End()
		}
		blocks := l.refBlocks.Len / clusterSize
		if blocks*countsPerBlock*clusterSize < end || l.refTable.Len/8 < blocks {
			t.Errorf("%d: %d refcount blocks in a table of %v do not count %d bytes", size, blocks, l.refTable, end)
		}
		if l.data.Len < size || l.tables()*entriesPerL2 < l.clusters || l.l1.Len/8 < l.tables() {
			t.Errorf("%d: tables too small: %+v", size, l)
		}
		if l.counted(blocks-1).Empty() || l.mapped(l.tables()-1).Empty() {
			t.Errorf("%d: the last table is for nothing", size)
		}
	}
}

func TestNote(t *testing.T) {
	b := encodeNote(6 << 40)
	if size, ok := parseNote(b); !ok || size != 6<<40 {
		t.Errorf("got %d, %v", size, ok)
	}
	for i := range len(noteText) + 16 {
		b[i] ^= 4
		if _, ok := parseNote(b); ok {
			t.Errorf("a flip in byte %d goes unseen", i)
		}
		b[i] ^= 4
	}
}
