package vmdk

import (
	"bytes"
	"compress/flate"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
)

var updateCodePages = flag.Bool("update", false, "write codepages.deflate from the tables of golang.org/x/text")

// referencePages holds the code pages of golang.org/x/text.
var referencePages = [codePages]encoding.Encoding{
	gb18030: simplifiedchinese.GB18030, big5: traditionalchinese.Big5, shiftJIS: japanese.ShiftJIS, eucKR: korean.EUCKR,
}

// decodeFirst returns the first character that the reference decodes, and its number of bytes.
func decodeFirst(t *testing.T, e encoding.Encoding, text []byte) (string, int) {
	t.Helper()
	for room := 1; room <= 8; room++ {
		dst := make([]byte, room)
		if n, size, _ := e.NewDecoder().Transformer.Transform(dst, text, true); n > 0 {
			return string(dst[:n]), size
		}
	}
	t.Fatalf("%x is not decoded", text)
	return "", 0
}

// packTables returns the content of codepages.deflate.
func packTables(t *testing.T) []byte {
	t.Helper()
	var tables []byte
	for _, e := range referencePages {
		planes := make([]byte, tableSize)
		for i := range tablePairs {
			text, size := decodeFirst(t, e, []byte{byte(0x80 + i>>8), byte(i), 0, 0})
			entry, length := utf8.DecodeRuneInString(text)
			if length < len(text) {
				entry = firstCombos + rune(slices.Index(big5Combos, text))
			}
			planes[i], planes[tablePairs+i], planes[2*tablePairs+i] = byte(entry), byte(entry>>8), byte(entry>>16)
			if size == 1 {
				planes[2*tablePairs+i] |= oneByte
			}
		}
		tables = append(tables, planes...)
	}
	fours := make([]byte, 2*tableFours)
	for n := range tableFours {
		text, _ := decodeFirst(t, referencePages[gb18030], fourBytes(n))
		r, _ := utf8.DecodeRuneInString(text)
		fours[n], fours[tableFours+n] = byte(r), byte(r>>8)
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(append(tables, fours...)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// fourBytes returns the four-byte code n of GB18030.
func fourBytes(n int) []byte {
	return []byte{byte(n/12600 + 0x81), byte(n/1260%10 + 0x30), byte(n/10%126 + 0x81), byte(n%10 + 0x30)}
}

// Each code page decodes like golang.org/x/text: every byte, every pair, a sample of the four-byte codes, and
// random text.
func TestCodePagesMatchTheirReference(t *testing.T) {
	if *updateCodePages {
		packedCodePages = packTables(t)
		if err := os.WriteFile("codepages.deflate", packedCodePages, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for p, e := range referencePages {
		var all [][]byte
		for a := range 256 {
			all = append(all, []byte{byte(a)})
			for b := range 256 {
				all = append(all, []byte{byte(a), byte(b)}, []byte{byte(a), byte(b), '"', byte(b)})
			}
		}
		if codePage(p) == gb18030 {
			for n := 0; n < 126*12600; n += 1 + n/(2*tableFours)*97 {
				all = append(all, fourBytes(n))
			}
		}
		for range 2000 {
			text := make([]byte, random.IntN(40))
			for i := range text {
				text[i] = byte(random.Uint32())
			}
			all = append(all, text)
		}
		for _, text := range all {
			want, err := e.NewDecoder().Bytes(text)
			if got := codePage(p).decodeAll(text); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("code page %d: %x decodes as %q, want %q, error %v", p, text, got, want, err)
			}
		}
	}
}
