package disk_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
)

func TestPatternConforms(t *testing.T) {
	disktest.TestSource(t, func(_ *testing.T, want disk.Source) disk.Source { return want })
}

func TestDescribeHasNoGaps(t *testing.T) {
	data := []disk.Range{{Off: 10, Len: 5}, {Off: 15, Len: 5}, {Off: 30, Len: 10}}
	for off := range int64(45) {
		for n := range 45 - off {
			r := disk.Range{Off: off, Len: n}
			at := off
			for _, e := range disk.Describe(r, data) {
				inside := 10 <= e.Off && e.End() <= 20 || 30 <= e.Off && e.End() <= 40
				outside := e.End() <= 10 || 20 <= e.Off && e.End() <= 30 || 40 <= e.Off
				if e.Off != at || e.Empty() || e.Kind == disk.Data && !inside || e.Kind == disk.Zero && !outside {
					t.Fatalf("%v of %v at %d", e, r, at)
				}
				at = e.End()
			}
			if at != r.End() {
				t.Fatalf("extents of %v end at %d", r, at)
			}
		}
	}
}

func TestPatternWordsContainTheirOffset(t *testing.T) {
	p := disk.NewPattern(1 << 20)
	b := make([]byte, 16)
	if err := p.ReadAt(t.Context(), b, 0x1230); err != nil {
		t.Fatal(err)
	}
	if binary.BigEndian.Uint64(b) != 0x1230 || binary.BigEndian.Uint64(b[8:]) != 0x1238 {
		t.Fatalf("got % x, want the offsets 0x1230 and 0x1238", b)
	}
	odd := make([]byte, 9)
	if err := p.ReadAt(t.Context(), odd, 0x1233); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(odd, b[3:12]) {
		t.Fatalf("odd offset: got % x, want % x", odd, b[3:12])
	}
}

func TestSparsePatternHasAboutTheGivenFill(t *testing.T) {
	const size = 16 << 30
	p := disk.NewSparsePattern(size, 0.5, 7)
	extents, err := p.Extents(t.Context(), disk.Range{Len: size})
	if err != nil {
		t.Fatal(err)
	}
	var data int64
	for _, e := range extents {
		if e.Kind == disk.Data {
			data += e.Len
		}
	}
	if share := float64(data) / size; share < 0.35 || share > 0.55 {
		t.Fatalf("%.2f of the disk is data, want about 0.5", share)
	}
}

func TestCheckFindsOneWrongBit(t *testing.T) {
	p := disk.NewPattern(1 << 20)
	b := make([]byte, 4096)
	if err := p.ReadAt(t.Context(), b, 8192); err != nil {
		t.Fatal(err)
	}
	b[100] ^= 4
	err := disk.NewCheck(p).WriteAt(t.Context(), b, 8192)
	if err == nil || !strings.Contains(err.Error(), "8292") {
		t.Fatalf("got %v, want an error that names byte 8292", err)
	}
}

func TestCheckRequiresEveryByteOnce(t *testing.T) {
	ctx := context.Background()
	p := disk.NewSparsePattern(8<<20, 0, 0) // all zero
	c := disk.NewCheck(p)
	if err := c.Zero(ctx, disk.Range{Len: 7 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := c.Finish(ctx); err == nil {
		t.Fatal("Finish accepts a missing MiB")
	}
	if err := c.Zero(ctx, disk.Range{Off: 6 << 20, Len: 2 << 20}); err == nil {
		t.Fatal("Zero accepts a MiB that is already covered")
	}
}

func TestCheckRefusesZeroOverData(t *testing.T) {
	c := disk.NewCheck(disk.NewPattern(2 << 20))
	if err := c.Zero(t.Context(), disk.Range{Off: 1 << 20, Len: 4096}); err == nil {
		t.Fatal("Zero accepts a range with data")
	}
}

func TestAlignedMemory(t *testing.T) {
	for n := range int64(100) {
		if b := disk.AlignedMemory(n); !disk.IsAligned(b) || int64(len(b)) != n || cap(b) != len(b) {
			t.Fatalf("%d bytes: aligned %v, length %d, capacity %d", n, disk.IsAligned(b), len(b), cap(b))
		}
	}
	if disk.IsAligned(disk.AlignedMemory(2)[1:]) {
		t.Fatal("IsAligned accepts a slice that starts one byte later")
	}
}

func TestRangeIntersect(t *testing.T) {
	a := disk.Range{Off: 10, Len: 10}
	for _, c := range []struct{ b, want disk.Range }{
		{disk.Range{Off: 0, Len: 100}, a},
		{disk.Range{Off: 15, Len: 100}, disk.Range{Off: 15, Len: 5}},
		{disk.Range{Off: 20, Len: 5}, disk.Range{Off: 20}},
	} {
		if got := a.Intersect(c.b); got != c.want {
			t.Errorf("%v ∩ %v = %v, want %v", a, c.b, got, c.want)
		}
	}
}

func BenchmarkPattern(b *testing.B) {
	p := disk.NewPattern(1 << 40)
	buf := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	for b.Loop() {
		if err := p.ReadAt(context.Background(), buf, 1<<30); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	p := disk.NewPattern(1 << 30)
	buf := make([]byte, 1<<20)
	if err := p.ReadAt(context.Background(), buf, 0); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(1 << 20)
	for b.Loop() {
		if err := disk.NewCheck(p).WriteAt(context.Background(), buf, 0); err != nil {
			b.Fatal(err)
		}
	}
}
