package nfc

import (
	"testing"
	"time"

	"github.com/decamp/decamp/internal/nfc"
)

// wireRates is a connection to a host: the rate of disk bytes with each compression, in bytes/s.
type wireRates map[nfc.Compression]float64

// runTrial simulates reads of 1 MiB until the trial is decided or most bytes are read.
func runTrial(rates wireRates, most int64) (*compressionTrial, int64) {
	t := newCompressionTrial([]nfc.Compression{nfc.Stored, nfc.SkipZ, nfc.FastLZ})
	now := time.Unix(1000, 0)
	var read int64
	for !t.decided && read < most {
		c := t.nextCompression(1 << 20)
		now = now.Add(time.Duration(float64(1<<20) / rates[c] * float64(time.Second)))
		t.recordRead(now, 1<<20, c)
		read += 1 << 20
	}
	return t, read
}

func TestTrialChoosesFastestCompression(t *testing.T) {
	for name, v := range map[string]struct {
		rates wireRates
		want  nfc.Compression
	}{
		"a slow link and sparse data":   {wireRates{nfc.Stored: 5.3e6, nfc.SkipZ: 26e6, nfc.FastLZ: 23e6}, nfc.SkipZ},
		"1 Gbit/s and packable data":    {wireRates{nfc.Stored: 115e6, nfc.SkipZ: 118e6, nfc.FastLZ: 170e6}, nfc.FastLZ},
		"1 Gbit/s and random data":      {wireRates{nfc.Stored: 115e6, nfc.SkipZ: 115e6, nfc.FastLZ: 60e6}, nfc.Stored},
		"a little faster is not enough": {wireRates{nfc.Stored: 100e6, nfc.SkipZ: 110e6, nfc.FastLZ: 90e6}, nfc.Stored},
		"a fast LAN":                    {wireRates{nfc.Stored: 500e6, nfc.SkipZ: 900e6, nfc.FastLZ: 900e6}, nfc.Stored},
		"a very slow link":              {wireRates{nfc.Stored: 1e5, nfc.SkipZ: 1e6, nfc.FastLZ: 2e5}, nfc.SkipZ},
	} {
		tr, read := runTrial(v.rates, 4<<30)
		if got, rates := tr.outcome(); got != v.want || !tr.decided {
			t.Errorf("%s: %v after %d MiB (%s), want %v", name, got, read>>20, rates, v.want)
		}
	}
}

// The trial needs little data on a fast LAN, and less than a minute on a slow link.
func TestTrialIsShort(t *testing.T) {
	if _, read := runTrial(wireRates{nfc.Stored: 500e6}, 4<<30); read > 256<<20 {
		t.Errorf("%d MiB on a fast LAN, want at most 256", read>>20)
	}
	if _, read := runTrial(wireRates{nfc.Stored: 5e6, nfc.SkipZ: 25e6, nfc.FastLZ: 20e6}, 4<<30); read > 300<<20 {
		t.Errorf("%d MiB on a slow link, want at most 300", read>>20)
	}
}

// A late read of another measurement does not start the current one.
func TestTrialIgnoresLateReads(t *testing.T) {
	tr := newCompressionTrial([]nfc.Compression{nfc.Stored, nfc.SkipZ})
	tr.recordRead(time.Unix(1, 0), 1<<20, nfc.SkipZ)
	if !tr.began.IsZero() {
		t.Error("a read with another compression started the measurement")
	}
}

// Small reads, as those of a guest, are not measured, because latency limits their rate. They use the first
// compression.
func TestTrialIgnoresSmallReads(t *testing.T) {
	tr := newCompressionTrial([]nfc.Compression{nfc.Stored, nfc.FastLZ})
	now := time.Unix(1, 0)
	for range 100_000 {
		now = now.Add(time.Millisecond)
		if c := tr.nextCompression(4096); c != nfc.Stored {
			t.Fatalf("a small read uses %v, want Stored", c)
		}
		tr.recordRead(now, 4096, nfc.Stored)
	}
	if tr.started > 0 || tr.decided {
		t.Error("small reads were measured, want no measurement")
	}
	tr.current = 1 // the measurement of FastLZ
	if c := tr.nextCompression(4096); c != nfc.Stored {
		t.Errorf("a small read uses %v, want Stored", c)
	}
}
