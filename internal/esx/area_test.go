package esx

import (
	"encoding/binary"
	"testing"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/disk"
)

// FuzzDescribeAreas compares describeAreas with a map of single bytes. The extents cover the range
// once and in order, and a byte is data only if an area contains it.
func FuzzDescribeAreas(f *testing.F) {
	f.Add([]byte{}, uint8(0), uint8(100))
	f.Add([]byte{0, 10, 10, 10, 30, 5}, uint8(5), uint8(30))      // adjacent, then apart
	f.Add([]byte{20, 10, 0, 50, 5, 5, 5, 5}, uint8(10), uint8(0)) // nested, repeated, out of order
	f.Add([]byte{255, 255, 0, 255}, uint8(0), uint8(255))
	f.Fuzz(func(t *testing.T, raw []byte, off, n uint8) {
		var areas []disk.Range
		var used [512]bool
		for ; len(raw) >= 2; raw = raw[2:] {
			v := binary.BigEndian.Uint16(raw)
			a := disk.Range{Off: int64(v >> 8), Len: int64(v & 255)}
			areas = append(areas, a)
			for i := a.Off; i < a.End(); i++ {
				used[i] = true
			}
		}
		r := disk.Range{Off: int64(off), Len: int64(n)}
		at := r.Off
		for i, e := range describeAreas(r, areas) {
			if e.Off != at || e.Len <= 0 {
				t.Fatalf("extent %d is %v, want it at %d and not empty", i, e, at)
			}
			for b := e.Off; b < e.End(); b++ {
				if used[b] != (e.Kind == disk.Data) {
					t.Fatalf("byte %d is in %v extent %v; areas %v", b, e.Kind, e.Range, areas)
				}
			}
			at = e.End()
		}
		if at != r.End() {
			t.Fatalf("covered to %d of %v", at, r)
		}
	})
}

// FuzzReadMap has a server return arbitrary pages. readMap sends at most one query per
// sector, and either fails or covers the range once.
func FuzzReadMap(f *testing.F) {
	f.Add(int64(0), int64(8192), []byte{0, 4, 0, 1, 4, 4, 5, 9})
	f.Add(int64(512), int64(1024), []byte{1, 0, 0, 0})
	f.Add(int64(0), int64(4096), []byte{0, 200, 200, 200})
	f.Fuzz(func(t *testing.T, off, n int64, answers []byte) {
		r := disk.Range{Off: abs(off) % (1 << 20), Len: abs(n) % (1 << 16)}
		queries := int64(0)
		next := func() (v int64) {
			if len(answers) > 0 {
				v, answers = int64(int8(answers[0]))*512, answers[1:]
			}
			return v
		}
		areas, err := readMap(r, func(at int64) (*types.DiskChangeInfo, error) {
			if queries++; queries > r.Len/512+1 {
				t.Fatalf("query %d for %v", queries, r)
			}
			page := &types.DiskChangeInfo{StartOffset: at + min(next(), 0), Length: next()}
			page.ChangedArea = append(page.ChangedArea, types.DiskChangeExtent{Start: next(), Length: next()})
			return page, nil
		})
		if err != nil {
			return
		}
		at := r.Off
		for _, e := range describeAreas(r, areas) {
			if e.Off != at || e.Len <= 0 {
				t.Fatalf("extent %v at %d", e, at)
			}
			at = e.End()
		}
		if at != r.End() {
			t.Fatalf("covered to %d of %v", at, r)
		}
	})
}

func abs(v int64) int64 {
	if v < 0 {
		v = -(v + 1)
	}
	return v
}

func TestAdjacentAreasAreJoined(t *testing.T) {
	got := describeAreas(disk.Range{Len: 100}, []disk.Range{{Off: 30, Len: 10}, {Off: 10, Len: 20}, {Off: 35, Len: 20}})
	if len(got) != 3 || got[1].Range != (disk.Range{Off: 10, Len: 45}) {
		t.Fatalf("%v", got)
	}
}
