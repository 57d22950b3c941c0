package fastlz

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func decodeHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// longRun returns 65536 bytes 'A' as the C library compresses them.
func longRun(t testing.TB) []byte {
	return slices.Concat(decodeHex(t, "214141e0"), bytes.Repeat([]byte{255}, 256), decodeHex(t, "f001044141414141"))
}

func TestVectors(t *testing.T) {
	vectors := map[string]struct{ src, want []byte }{
		"level 1":        {decodeHex(t, "0341424344 e0fd03 e0e803 044441424344"), bytes.Repeat([]byte("ABCD"), 128)},
		"level 2":        {longRun(t), bytes.Repeat([]byte{'A'}, 1<<16)},
		"literals alone": {decodeHex(t, "02616263"), []byte("abc")},
	}
	for name, v := range vectors {
		got := make([]byte, len(v.want))
		if err := Decode(got, v.src); err != nil || !bytes.Equal(got, v.want) {
			t.Errorf("%s: error %v, equal %v", name, err, bytes.Equal(got, v.want))
		}
	}
}

// A match can start at the first byte, and at level 2 up to 8192 + 65535 bytes earlier.
func TestFarMatches(t *testing.T) {
	const seed = 1
	rnd := rand.New(rand.NewPCG(seed, seed))
	for _, distance := range []int{1, 31, 8191, 8192, 8193, 70000, 8192 + 65535} {
		head := make([]byte, distance)
		for i := range head {
			head[i] = byte(rnd.Uint32())
		}
		want := bytes.Clone(head)
		for len(want) < distance+40 {
			want = append(want, want[len(want)-distance])
		}
		got := make([]byte, len(want))
		if err := Decode(got, encode(want, 2)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("distance %d: error %v", distance, err)
		}
	}
}

func TestDamage(t *testing.T) {
	for name, src := range map[string]string{
		"empty":                      "",
		"level 3":                    "4141",
		"literals past the source":   "0341",
		"literals past the target":   "0541424344 4546",
		"match before the start":     "0041 2001",
		"match past the target":      "0041 e0ff00",
		"ends within a length":       "0041 e0",
		"ends within a distance":     "0041 20",
		"ends within a far distance": "2041 3fff00",
		"too little":                 "0041",
		"endless length":             "2041 e0" + strings.Repeat("ff", 64),
	} {
		if err := Decode(make([]byte, 4), decodeHex(t, src)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %v, want %v", name, err, ErrCorrupt)
		}
	}
}

func TestDecodeAllocatesNoMemory(t *testing.T) {
	src, dst := longRun(t), make([]byte, 1<<16)
	if n := testing.AllocsPerRun(10, func() { _ = Decode(dst, src) }); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

// FuzzDecode decodes fuzzed bytes. It checks that Decode does not panic and writes nothing outside of dst.
func FuzzDecode(f *testing.F) {
	f.Add(decodeHex(f, "0341424344e0fd03e0e803044441424344"), 512)
	f.Add(longRun(f), 1<<16)
	f.Add(decodeHex(f, "20413fffffff"), 9)
	f.Fuzz(func(t *testing.T, src []byte, size int) {
		if size < 0 || size > 1<<20 {
			return
		}
		const guard = 64
		room := bytes.Repeat([]byte{0xa5}, guard+size+guard)
		err := Decode(room[guard:guard+size:guard+size], src)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("error %v is not ErrCorrupt", err)
		}
		for _, b := range slices.Concat(room[:guard], room[guard+size:]) {
			if b != 0xa5 {
				t.Fatal("a byte outside the target was written")
			}
		}
	})
}

// FuzzRoundTrip decodes the output of encode.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("abcabcabcabcabcabcabcabc"), false)
	f.Add(bytes.Repeat([]byte{7}, 70000), true)
	f.Fuzz(func(t *testing.T, want []byte, two bool) {
		if len(want) == 0 || len(want) > 1<<17 {
			return
		}
		level := 1
		if two {
			level = 2
		}
		got := make([]byte, len(want))
		if err := Decode(got, encode(want, level)); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("level %d: error %v", level, err)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	src := make([]byte, 1<<20)
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := 0; i < len(src); i += 8 {
		copy(src[i:], []byte{byte(rnd.IntN(16)), 0, 0, 1, 2, 3, byte(rnd.IntN(4)), 9})
	}
	packed, dst := encode(src, 2), make([]byte, len(src))
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Decode(dst, packed); err != nil {
			b.Fatal(err)
		}
	}
}

// encode is a simple greedy encoder. It stores the last position of each sequence of three bytes.
func encode(src []byte, level int) []byte {
	var out, literals []byte
	flush := func() {
		for len(literals) > 0 {
			n := min(len(literals), 32)
			out = append(append(out, byte(n-1)), literals[:n]...)
			literals = literals[n:]
		}
	}
	far, longest := 8192, 9+255
	if level == 2 {
		far, longest = 8192+65535, 1<<17
	}
	last := map[[3]byte]int{}
	for i := 0; i < len(src); {
		n, distance := 0, 0
		if i > 0 && i+3 <= len(src) {
			if at, ok := last[[3]byte(src[i:])]; ok && i-at <= far {
				distance = i - at
				for i+n < len(src) && n < longest && src[i+n] == src[at+n] {
					n++
				}
			}
		}
		step := max(n, 1)
		if n < 3 {
			literals = append(literals, src[i])
			step = 1
		} else {
			flush()
			out = appendMatch(out, n, distance, level)
		}
		for j := i; j < i+step && j+3 <= len(src); j++ {
			last[[3]byte(src[j:])] = j
		}
		i += step
	}
	flush()
	out[0] |= byte(level-1) << 5
	return out
}

func appendMatch(out []byte, n, distance, level int) []byte {
	field := min(n-2, 7)
	tail := []byte{byte((distance - 1) & 255)}
	high := (distance - 1) >> 8
	if level == 2 && distance >= 8192 {
		high, tail = 31, []byte{255, byte((distance - 8192) >> 8), byte(distance - 8192)}
	}
	out = append(out, byte(field<<5|high))
	if field == 7 {
		rest := n - 9
		for level == 2 && rest >= 255 {
			out, rest = append(out, 255), rest-255
		}
		out = append(out, byte(rest))
	}
	return append(out, tail...)
}
