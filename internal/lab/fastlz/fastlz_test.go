package fastlz

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"
)

// sampleData returns data like that of disks, with sizes around the limits of the format.
func sampleData() map[string][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 200_000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	far := append(append(bytes.Clone(noise[:9000]), make([]byte, 60_000)...), noise[:9000]...)
	text := []byte(strings.Repeat("the quick brown fox jumps over the lazy dog; ", 4000))
	few := make([]byte, 150_000)
	for i := range few {
		few[i] = "ab"[r.IntN(2)]
	}
	return map[string][]byte{
		"sixteen": text[:16], "zeros": make([]byte, 512), "many zeros": make([]byte, 1<<20), "noise": noise[:4096], "much noise": noise,
		"text": text[:65535], "long text": text, "two letters": few, "far": far, "one sector": text[:512], "level 2 least": text[:65536],
	}
}

func TestRoundTrip(t *testing.T) {
	for name, src := range sampleData() {
		packed := Compress([]byte("before"), src)
		if !bytes.HasPrefix(packed, []byte("before")) {
			t.Fatalf("%s: the prefix of dst is lost", name)
		}
		packed = packed[len("before"):]
		if level := int(packed[0]>>5) + 1; (level == 2) != (len(src) >= 65536) {
			t.Errorf("%s: %d bytes at level %d", name, len(src), level)
		}
		got := make([]byte, len(src))
		if err := Decompress(got, packed); err != nil || !bytes.Equal(got, src) {
			t.Errorf("%s: %v, %d bytes compressed to %d", name, err, len(src), len(packed))
		}
		if max := len(src) + len(src)/32 + 1; len(packed) > max {
			t.Errorf("%s: %d bytes compressed to %d, want at most %d", name, len(src), len(packed), max)
		}
	}
	if got := Compress(nil, make([]byte, 15)); got != nil {
		t.Errorf("15 bytes compressed to % x, want nil", got)
	}
}

// The vectors are output of the C library.
func TestDecompressOutputOfTheCLibrary(t *testing.T) {
	packed, err := hex.DecodeString("0341424344" + "e0fd03" + "e0e803" + "044441424344")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 512)
	if err := Decompress(got, packed); err != nil || !bytes.Equal(got, bytes.Repeat([]byte("ABCD"), 128)) {
		t.Errorf("level 1: %v %q", err, got)
	}
	packed = append([]byte{0x21, 0x41, 0x41, 0xe0}, bytes.Repeat([]byte{0xff}, 256)...)
	packed = append(packed, 0xf0, 0x01, 0x04, 0x41, 0x41, 0x41, 0x41, 0x41)
	got = make([]byte, 65536)
	if err := Decompress(got, packed); err != nil || !bytes.Equal(got, bytes.Repeat([]byte("A"), 65536)) {
		t.Errorf("level 2: %v", err)
	}
}

func FuzzDecompress(f *testing.F) {
	for _, src := range sampleData() {
		if len(src) <= 65536 {
			f.Add(Compress(nil, src), uint16(len(src)))
		}
	}
	f.Fuzz(func(t *testing.T, packed []byte, size uint16) {
		dst := make([]byte, int(size)+1)
		dst[size] = 0xa5
		_ = Decompress(dst[:size], packed)
		if dst[size] != 0xa5 {
			t.Error("Decompress writes past the end of dst")
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	for _, src := range sampleData() {
		if len(src) <= 70_000 {
			f.Add(src)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		packed := Compress(nil, src)
		if len(src) < 16 {
			return
		}
		got := make([]byte, len(src))
		if err := Decompress(got, packed); err != nil || !bytes.Equal(got, src) {
			t.Errorf("%v: %x compressed to %x", err, src, packed)
		}
	})
}

func BenchmarkCompress(b *testing.B) {
	src := sampleData()["long text"]
	dst := make([]byte, 0, 2*len(src))
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		dst = Compress(dst[:0], src)
	}
}
