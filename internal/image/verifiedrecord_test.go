package image

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/manifest"
)

var provenInfo = manifest.Info{Disk: "2000", Size: 300*manifest.ChunkSize + 512, Source: "run 7"}

func openProven(t *testing.T, path string, info manifest.Info) *VerifiedRecord {
	t.Helper()
	p, err := OpenVerifiedRecord(path, info)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A saved record is loaded again, but not for another image, and not after damage.
func TestVerifiedChunksAreSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifest")
	p := openProven(t, path, provenInfo)
	want := map[int64]bool{0: true, 300: true}
	for range 150 {
		want[rand.Int64N(301)] = true
	}
	for c := range want {
		p.setVerified(c)
	}
	if err := p.Save(); err != nil {
		t.Fatal(err)
	}
	again := openProven(t, path, provenInfo)
	for c := range int64(301) {
		if again.Has(c) != want[c] {
			t.Errorf("chunk %d: verified %v, want %v", c, again.Has(c), want[c])
		}
	}
	other := provenInfo
	other.Source = "run 8"
	if n := openProven(t, path, other).Count(); n > 0 {
		t.Errorf("%d chunks of another image are verified", n)
	}
	text, err := os.ReadFile(path + provenSuffix)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		bad := bytes.Clone(text)
		bad[rand.IntN(len(bad))] ^= 1 << rand.IntN(8)
		if _, err := parseProven(bad, provenInfo); err == nil {
			t.Fatal("a record with a flipped bit was accepted")
		}
		if _, err := parseProven(text[:rand.IntN(len(text))], provenInfo); err == nil {
			t.Fatal("a truncated record was accepted")
		}
	}
}

// While the image is written, no record exists, so that no chunk is verified after a crash.
func TestNothingIsVerifiedDuringWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifest")
	log, err := manifest.Create(path, provenInfo)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := log.Append(t.Context(), []manifest.Run{{First: 0, Zeros: 200}}); err != nil {
		t.Fatal(err)
	}
	p := openProven(t, path, provenInfo)
	for c := range int64(301) {
		p.setVerified(c)
	}
	if err := p.Save(); err != nil {
		t.Fatal(err)
	}
	p = openProven(t, path, provenInfo)
	ledger, err := p.Ledger(log)
	if err != nil {
		t.Fatal(err)
	}
	if n := openProven(t, path, provenInfo).Count(); n > 0 {
		t.Errorf("%d chunks would be verified after a crash", n)
	}
	if err := ledger.DropAll([]int64{3, 4, 9}); err != nil {
		t.Fatal(err)
	}
	if err := ledger.Append(t.Context(), []manifest.Run{{First: 20, Hashes: make([]manifest.Hash, 5)}}); err != nil {
		t.Fatal(err)
	}
	if err := p.Save(); err != nil {
		t.Fatal(err)
	}
	if n := openProven(t, path, provenInfo).Count(); n != 200-3-5 {
		t.Errorf("%d chunks are verified, want the %d listed ones that were not written", n, 200-3-5)
	}
}

// FuzzProven parses arbitrary records. An accepted record lists no chunk outside the disk, and is the same after it is
// encoded and parsed again.
func FuzzProven(f *testing.F) {
	for _, numbers := range [][]uint64{
		{0, 0, 0}, {1 << 20, 1, 0, 301, 1, 3, 200}, {0, 2, 3, 5, 100, 2, 0}, {0, 1, 0, 302, 0}, {0, 1, 1 << 63, 1 << 63, 0}, {1 << 63, 0, 0},
	} {
		var b []byte
		for _, n := range numbers {
			b = binary.AppendUvarint(b, n)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, rest []byte) {
		b := append([]byte(provenMagic), identityOf(provenInfo)...)
		b = append(b, rest...)
		sum := manifest.HashOf(b)
		r, err := parseProven(append(b, sum[:]...), provenInfo)
		if err != nil {
			return
		}
		p := &VerifiedRecord{info: provenInfo, record: r}
		for c := int64(301); c < 320; c++ { // the bitmap has whole words of 64 bits
			if p.Has(c) {
				t.Errorf("chunk %d outside the disk is verified", c)
			}
		}
		again, err := parseProven(p.encodeRecord(), provenInfo)
		if err != nil {
			t.Fatal(err)
		}
		q := &VerifiedRecord{info: provenInfo, record: again}
		if q.Count() != p.Count() || !bytes.Equal(q.encodeRecord(), p.encodeRecord()) {
			t.Fatalf("%d chunks, then %d", p.Count(), q.Count())
		}
	})
}
