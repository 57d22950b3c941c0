package units

import (
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "512": 512, "512B": 512, "100M": 100 << 20, "8GiB": 8 << 30, "6T": 6 << 40, "1K": 1024} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "M", "-1", "1.5G", "1X", "1MM", "9999999999T", "1 M", "1iB"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", s, got)
		}
	}
}

func TestFormatSizeRoundTrip(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 512: "512", 1536: "1536", 100 << 20: "100M", 6 << 40: "6T", 2048 << 40: "2048T"} {
		got := FormatSize(n)
		if back, err := ParseSize(got); got != want || err != nil || back != n {
			t.Errorf("%d is formatted as %q, want %q, and parsed as %d, %v", n, got, want, back, err)
		}
	}
}

func TestParseRate(t *testing.T) {
	for s, want := range map[string]int64{"55M": 55_000_000, "1.5G": 1_500_000_000, "300": 300, "0": 0} {
		if got, err := ParseRate(s); err != nil || got != want {
			t.Errorf("ParseRate(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "M", "-1M", "NaN", "Inf", "1e300", "5X", "1MK"} {
		if got, err := ParseRate(s); err == nil {
			t.Errorf("ParseRate(%q) = %d, want an error", s, got)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1234 * time.Microsecond: "1ms", 3240 * time.Millisecond: "3.2s", 65400 * time.Millisecond: "1m5s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
