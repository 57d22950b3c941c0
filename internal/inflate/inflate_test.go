package inflate

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// testContent returns n bytes of a kind. Each kind results in different blocks and codes.
func testContent(kind string, n int) []byte {
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	switch kind {
	case "zeros":
	case "random":
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
	case "skewed": // long codes
		for i := range b {
			b[i] = byte(rnd.ExpFloat64() * 12)
		}
	case "text":
		words := strings.Fields("the grain directory of a disk names tables that name grains and zero is none")
		var t []byte
		for len(t) < n {
			t = append(append(t, words[rnd.IntN(len(words))]...), ' ')
		}
		copy(b, t)
	case "short distances":
		for i := range b {
			b[i] = byte(i % (1 + i/1000%13))
		}
	case "program":
		for i := range b {
			if b[i] = byte(rnd.ExpFloat64() * 40); i > 4000 && rnd.IntN(4) > 0 {
				b[i] = b[i-1-rnd.IntN(4000)]
			}
			if i > 70 && rnd.IntN(20) == 0 {
				i += copy(b[i:], b[i-70:i-rnd.IntN(60)])
			}
		}
	}
	return b
}

var kinds = []string{"zeros", "random", "skewed", "text", "short distances", "program"}

func deflate(t testing.TB, b []byte, level int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, level)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func compressZlib(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zlib.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRawRoundTrip(t *testing.T) {
	var d Decoder
	for _, kind := range kinds {
		for _, size := range []int{0, 1, 7, 258, 300, 4096, 65535, 65536, 200_000} {
			want := testContent(kind, size)
			for level := flate.HuffmanOnly; level <= flate.BestCompression; level++ {
				packed := deflate(t, want, level)
				got := make([]byte, size)
				n, used, err := d.Raw(got, append(packed, 0xAA, 0x55))
				if err != nil || n != size || used != len(packed) {
					t.Fatalf("%s, %d bytes, level %d: %d bytes, %d used, error %v", kind, size, level, n, used, err)
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("%s, %d bytes, level %d: content differs", kind, size, level)
				}
			}
		}
	}
}

func TestRawWritesOnlyToDst(t *testing.T) {
	var d Decoder
	for _, kind := range kinds {
		want := testContent(kind, 5000)
		packed := deflate(t, want, 6)
		room := bytes.Repeat([]byte{0x77}, 6000)
		if _, _, err := d.Raw(room[:5000], packed); err != nil {
			t.Fatal(err)
		}
		if i := bytes.IndexFunc(room[5000:], func(r rune) bool { return r != 0x77 }); i >= 0 {
			t.Fatalf("%s: byte %d after the output was written", kind, i)
		}
	}
}

func TestZlibOfATruncatedStream(t *testing.T) {
	var d Decoder
	dst := make([]byte, 70_000)
	for _, kind := range kinds {
		packed := compressZlib(t, testContent(kind, 66_000))
		for cut := range packed {
			if cut > 600 && cut < len(packed)-600 && cut%97 != 0 {
				continue
			}
			if _, _, err := d.Zlib(dst, packed[:cut]); !errors.Is(err, ErrTruncated) {
				t.Fatalf("%s truncated at %d of %d: got %v, want %v", kind, cut, len(packed), err, ErrTruncated)
			}
		}
	}
}

func TestZlibChecks(t *testing.T) {
	want := testContent("text", 10_000)
	good := compressZlib(t, want)
	broken := func(at int, xor byte) []byte {
		b := bytes.Clone(good)
		b[at] ^= xor
		return b
	}
	for _, c := range []struct {
		name string
		src  []byte
		room int
		want error
	}{
		{"good", good, len(want), nil},
		{"room to spare", good, len(want) + 1, nil},
		{"a byte too little", good, len(want) - 1, ErrTooLong},
		{"no room", good, 0, ErrTooLong},
		{"not deflate", []byte{0x79, 0x9c, 0, 0, 0}, 1, ErrHeader},
		{"window of 64 KiB", []byte{0x88, 0x1c, 0, 0, 0}, 1, ErrHeader},
		{"wrong check bits", broken(1, 1), len(want), ErrHeader},
		{"preset dictionary", []byte{0x78, 0xbb, 0, 0}, 1, ErrHeader},
		{"wrong checksum", broken(len(good)-1, 1), len(want), ErrChecksum},
		{"third kind of block", []byte{0x78, 0x9c, 7}, 9, ErrCorrupt},
		{"stored length and its inverse differ", []byte{0x78, 0x9c, 1, 5, 0, 5, 0}, 9, ErrCorrupt},
		{"match before the first byte", []byte{0x78, 0x9c, 0x03, 0x02, 0, 0, 0}, 9, ErrCorrupt},
		{"empty", nil, 9, ErrTruncated},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Decoder
			n, used, err := d.Zlib(make([]byte, c.room), c.src)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err == nil && (n != len(want) || used != len(good)) {
				t.Fatalf("%d bytes from %d, want %d from %d", n, used, len(want), len(good))
			}
		})
	}
}

func TestDecodingAllocatesNoMemory(t *testing.T) {
	var d Decoder
	packed := compressZlib(t, testContent("program", 65536))
	dst := make([]byte, 65536)
	if n := testing.AllocsPerRun(20, func() { _, _, _ = d.Zlib(dst, packed) }); n != 0 {
		t.Fatalf("got %v allocations, want 0", n)
	}
}

// FuzzRaw compares Raw with compress/flate: both return the same bytes, or both return an error.
func FuzzRaw(f *testing.F) {
	for _, kind := range kinds {
		for _, level := range []int{flate.HuffmanOnly, 0, 1, 6} {
			f.Add(deflate(f, testContent(kind, 3000), level))
		}
	}
	f.Add([]byte{0x03, 0x02, 0})
	f.Add([]byte{0xed, 0xc0, 0x01, 0x01, 0, 0, 0, 0x80, 0x90, 0xfe, 0x37})
	f.Fuzz(func(t *testing.T, src []byte) {
		const most = 1 << 14
		in := bytes.NewReader(src)
		want, wantErr := io.ReadAll(io.LimitReader(flate.NewReader(in), most+1))
		var d Decoder
		got := make([]byte, most)
		n, used, err := d.Raw(got, src)
		switch {
		case len(want) > most:
			if err == nil {
				t.Fatalf("got %d bytes and no error, want an error for more than %d bytes", n, most)
			}
		case (err == nil) != (wantErr == nil):
			t.Fatalf("got error %v, compress/flate returns %v", err, wantErr)
		case err == nil && !bytes.Equal(got[:n], want):
			t.Fatal("content differs from compress/flate")
		case err == nil && used != len(src)-in.Len():
			t.Fatalf("used %d bytes, compress/flate %d", used, len(src)-in.Len())
		}
	})
}
