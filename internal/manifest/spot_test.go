package manifest

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

func TestSpotComparesWhatWasAsked(t *testing.T) {
	src := disk.NewPattern(100<<20 + 512)
	o := SpotOptions{First: 3<<20 + 100, Ranges: 20, RangeLen: 64 << 10, Seed: 42}
	read := &spoiled{Source: src}
	report, err := Spot(context.Background(), read, src, o)
	if err != nil {
		t.Fatal(err)
	}
	if report.Bytes != 3<<20+100+20*64<<10 || len(report.Ranges) != 21 || report.Ranges[0] != (disk.Range{Len: 3<<20 + 100}) {
		t.Errorf("compared %d bytes in %v", report.Bytes, report.Ranges)
	}
	for _, r := range report.Ranges[1:] {
		if err := disk.CheckRange(src.Size(), r); err != nil || r.Off%512 != 0 || r.Len != 64<<10 {
			t.Errorf("compared %v: %v", r, err)
		}
	}
	again, _ := Spot(context.Background(), src, src, o)
	o.Seed++
	other, _ := Spot(context.Background(), src, src, o)
	if !reflect.DeepEqual(report, again) || reflect.DeepEqual(report.Ranges, other.Ranges) {
		t.Error("ranges do not follow the seed")
	}
}

// Over many seeds the ranges reach both ends of the disk.
func TestSpotReachesEverywhere(t *testing.T) {
	const size, n = 4 << 20, 512
	first, last := false, false
	for seed := range uint64(200) {
		for _, r := range (SpotOptions{Ranges: 200, RangeLen: n, Seed: seed}).pick(size) {
			first, last = first || r.Off == 0, last || r.End() == size
		}
	}
	if !first || !last {
		t.Errorf("first sector reached: %v, last: %v", first, last)
	}
}

func TestSpotNamesTheByteThatDiffers(t *testing.T) {
	src := disk.NewPattern(20 << 20)
	o := SpotOptions{First: 2 << 20, Ranges: 3, RangeLen: 2 << 20, Seed: 9}
	for i, r := range o.pick(src.Size()) {
		off := r.End() - 1
		image := &spoiled{Source: src, flip: map[int64]byte{off: 0x10}}
		report, err := Spot(context.Background(), src, image, o)
		wantFault(t, err, fault.Corrupt)
		want := fault.New(fault.Corrupt, "byte %d:", off).Error()
		if !strings.Contains(err.Error(), want) || fault.HintOf(err) == "" || len(report.Ranges) > i {
			t.Errorf("byte %d flipped: %v, after %v", off, err, report.Ranges)
		}
	}
}

func TestSpotOfDisksThatCannotBeCompared(t *testing.T) {
	src, ctx := disk.NewPattern(4<<20), context.Background()
	_, err := Spot(ctx, src, disk.NewPattern(5<<20), SpotOptions{First: 1})
	wantFault(t, err, fault.Corrupt)
	bad := errors.New("connection reset")
	_, err = Spot(ctx, &spoiled{Source: src, err: bad, errAt: 1 << 20}, src, SpotOptions{First: 4 << 20})
	if !errors.Is(err, bad) || !strings.Contains(err.Error(), "read source at 1048576") {
		t.Errorf("read error: %v", err)
	}
	report, err := Spot(ctx, src, src, SpotOptions{First: 1 << 40, Ranges: 2, RangeLen: 1 << 40})
	if err != nil || report.Bytes != 12<<20 {
		t.Errorf("more than the disk: %d bytes, %v", report.Bytes, err)
	}
	empty := disk.NewPattern(0)
	if report, err := Spot(ctx, empty, empty, SpotOptions{First: 1, Ranges: 2}); err != nil || report.Bytes != 0 {
		t.Errorf("empty disk: %d bytes, %v", report.Bytes, err)
	}
}
