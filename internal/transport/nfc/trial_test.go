package nfc

import (
	"testing"
	"time"

	"github.com/decamp/decamp/internal/nfc"
)

// wireOf is a way to the host: how fast disk bytes come with each compression.
type wireOf map[nfc.Compression]float64

// runTrial reads over that wire, 1 MiB at a time, until the trial is decided or so much was
// read.
func runTrial(rates wireOf, most int64) (*compressionTrial, int64) {
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

func TestTrialChoosesTheFastest(t *testing.T) {
	for name, v := range map[string]struct {
		rates wireOf
		want  nfc.Compression
	}{
		"a slow link and sparse data":   {wireOf{nfc.Stored: 5.3e6, nfc.SkipZ: 26e6, nfc.FastLZ: 23e6}, nfc.SkipZ},
		"1 Gbit/s and packable data":    {wireOf{nfc.Stored: 115e6, nfc.SkipZ: 118e6, nfc.FastLZ: 170e6}, nfc.FastLZ},
		"1 Gbit/s and random data":      {wireOf{nfc.Stored: 115e6, nfc.SkipZ: 115e6, nfc.FastLZ: 60e6}, nfc.Stored},
		"a little faster is not enough": {wireOf{nfc.Stored: 100e6, nfc.SkipZ: 110e6, nfc.FastLZ: 90e6}, nfc.Stored},
		"a fast LAN":                    {wireOf{nfc.Stored: 500e6, nfc.SkipZ: 900e6, nfc.FastLZ: 900e6}, nfc.Stored},
		"a very slow link":              {wireOf{nfc.Stored: 1e5, nfc.SkipZ: 1e6, nfc.FastLZ: 2e5}, nfc.SkipZ},
	} {
		tr, read := runTrial(v.rates, 4<<30)
		if got, rates := tr.outcome(); got != v.want || !tr.decided {
			t.Errorf("%s: %v after %d MiB (%s), want %v", name, got, read>>20, rates, v.want)
		}
	}
}

// On a fast LAN the question costs nothing; on a slow one less than a minute.
func TestTrialIsShort(t *testing.T) {
	if _, read := runTrial(wireOf{nfc.Stored: 500e6}, 4<<30); read > 256<<20 {
		t.Errorf("%d MiB on a fast LAN", read>>20)
	}
	if _, read := runTrial(wireOf{nfc.Stored: 5e6, nfc.SkipZ: 25e6, nfc.FastLZ: 20e6}, 4<<30); read > 300<<20 {
		t.Errorf("%d MiB on a slow link", read>>20)
	}
}

// What came late from the heat before does not count for the next.
func TestTrialIgnoresLateReads(t *testing.T) {
	tr := newCompressionTrial([]nfc.Compression{nfc.Stored, nfc.SkipZ})
	tr.recordRead(time.Unix(1, 0), 1<<20, nfc.SkipZ)
	if !tr.began.IsZero() {
		t.Error("a read of another compression began the heat")
	}
}

// The reads of a guest are small, and their rate is not that of the wire: they do not count, and use the
// first compression.
func TestTrialIgnoresSmallReads(t *testing.T) {
	tr := newCompressionTrial([]nfc.Compression{nfc.Stored, nfc.FastLZ})
	now := time.Unix(1, 0)
	for range 100_000 {
		now = now.Add(time.Millisecond)
		if c := tr.nextCompression(4096); c != nfc.Stored {
			t.Fatalf("a small read uses %v", c)
		}
		tr.recordRead(now, 4096, nfc.Stored)
	}
	if tr.started > 0 || tr.decided {
		t.Error("small reads were measured")
	}
	tr.current = 1 // the measurement of FastLZ
	if c := tr.nextCompression(4096); c != nfc.Stored {
		t.Errorf("a small read uses %v", c)
	}
}
