package main

import (
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/units"
)

func TestSizesAreShownInBinaryUnits(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 512: "512 B", 1024: "1 KiB", 1536: "1.5 KiB", 64 << 20: "64 MiB", 150<<20 + 1: "150 MiB",
		8 << 30: "8 GiB", 3 << 40: "3 TiB", 2000 << 50: "2000 PiB",
	} {
		if got := units.Binary(n); got != want {
			t.Errorf("Binary(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestRatesAreShownInDecimalUnits(t *testing.T) {
	if got := units.Rate(55_000_000, time.Second); got != "55 MB/s" {
		t.Errorf("got %q", got)
	}
	if got := units.Rate(3_200_000, time.Second); got != "3.2 MB/s" {
		t.Errorf("got %q", got)
	}
	if got := units.Rate(1, 0); got != "- MB/s" {
		t.Errorf("got %q", got)
	}
}

func TestPercentIsWholeOnlyAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		part, whole int64
		want        string
	}{{0, 10, "0 %"}, {6, 10, "60 %"}, {999_999, 1_000_000, "99 %"}, {10, 10, "100 %"}, {0, 0, "100 %"}} {
		if got := units.Percent(c.part, c.whole); got != c.want {
			t.Errorf("Percent(%d, %d) = %q, want %q", c.part, c.whole, got, c.want)
		}
	}
}

func TestSpotFlag(t *testing.T) {
	for text, want := range map[string]migrate.Spot{
		"100M": {First: 100 << 20}, "100M,4": {First: 100 << 20, Random: 4}, "0,8": {Random: 8}, "0": {None: true},
	} {
		var s spot
		if err := s.Set(text); err != nil || s.Spot != want {
			t.Errorf("%q: %+v, %v, want %+v", text, s, err, want)
		}
	}
	for _, text := range []string{"", ",", "1M,", "1M,-1", "1M,0", "x,1"} {
		var s spot
		if err := s.Set(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, s)
		}
	}
}

func TestPrintable(t *testing.T) {
	if got := fault.Printable("a\x1b[31mb\nc\u202eВ Büro"); got != "a?[31mb?c?В Büro" {
		t.Errorf("got %q", got)
	}
}
