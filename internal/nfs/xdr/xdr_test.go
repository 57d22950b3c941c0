package xdr

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// The example of RFC 4506 section 7: a file "sillyprog" of type EXEC with the interpreter
// "lisp", owned by john, that holds "(quit)".
const sillyprog = "00000009 73696c6c 7970726f 67000000 00000002 00000004 6c697370 00000004 6a6f686e 00000006 28717569 74290000"

func decodeHex(t *testing.T, s string) []byte {
	t.Helper()
	p, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestExampleOfRFC(t *testing.T) {
	want := decodeHex(t, sillyprog)
	d := NewDecoder(bytes.NewReader(want))
	name, kind, interpreter, owner, data := d.String(255), d.Uint32(), d.String(255), d.String(32), d.Opaque(65535)
	if d.Err() != nil || name != "sillyprog" || kind != 2 || interpreter != "lisp" || owner != "john" || string(data) != "(quit)" {
		t.Fatalf("%q %d %q %q %q, %v", name, kind, interpreter, owner, data, d.Err())
	}
	var e Encoder
	e.String(name)
	e.Uint32(kind)
	e.String(interpreter)
	e.String(owner)
	e.Opaque(data)
	if !bytes.Equal(e.Bytes(), want) {
		t.Errorf("encoded as % x, want % x", e.Bytes(), want)
	}
}

func TestIntegersAreBigEndian(t *testing.T) {
	var e Encoder
	e.Uint64(0x0102030405060708)
	e.Bool(true)
	e.Bool(false)
	copy(e.Extend(4), "abcd")
	e.PutUint32(8, 7)
	want := decodeHex(t, "0102030405060708 00000007 00000000 61626364")
	if !bytes.Equal(e.Bytes(), want) {
		t.Fatalf("encoded as % x, want % x", e.Bytes(), want)
	}
	d := NewDecoder(bytes.NewReader(want))
	if v := d.Uint64(); v != 0x0102030405060708 {
		t.Errorf("decoded as %x, want 102030405060708", v)
	}
}

func TestMalformedData(t *testing.T) {
	for name, c := range map[string]struct {
		bytes  string
		decode func(*Decoder)
	}{
		"nothing":             {"", func(d *Decoder) { d.Uint32() }},
		"half a word":         {"0000", func(d *Decoder) { d.Uint32() }},
		"half a hyper":        {"00000000", func(d *Decoder) { d.Uint64() }},
		"a boolean of 2":      {"00000002", func(d *Decoder) { d.Bool() }},
		"a string too long":   {"00000005 6162636465000000", func(d *Decoder) { _ = d.String(4) }},
		"a string cut off":    {"00000005 6162", func(d *Decoder) { _ = d.String(5) }},
		"padding cut off":     {"00000005 6162636465", func(d *Decoder) { _ = d.String(5) }},
		"a length of 4 GiB-1": {"ffffffff", func(d *Decoder) { d.Opaque(1 << 20) }},
		"a union's caller":    {"", func(d *Decoder) { d.Fail("discriminant %d", 9) }},
	} {
		d := NewDecoder(bytes.NewReader(decodeHex(t, c.bytes)))
		if c.decode(d); !errors.Is(d.Err(), ErrMalformed) {
			t.Errorf("%s: got error %v, want ErrMalformed", name, d.Err())
		}
		if d.Uint32() != 0 || d.Opaque(8) != nil {
			t.Errorf("%s: the decoder returns data after its error", name)
		}
	}
}

func TestStreamErrorsAreNotMalformed(t *testing.T) {
	d := NewDecoder(iotest.ErrReader(io.ErrClosedPipe))
	if d.Uint32(); !errors.Is(d.Err(), io.ErrClosedPipe) || errors.Is(d.Err(), ErrMalformed) {
		t.Fatalf("got %v, want ErrClosedPipe and not ErrMalformed", d.Err())
	}
}

// Decoded values are the same after they are encoded and decoded again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{0, 0, 0, 3, 'a', 'b', 'c', 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		d := NewDecoder(iotest.HalfReader(bytes.NewReader(in)))
		s, b, v := d.String(64), d.Bool(), d.Uint64()
		if d.Err() != nil {
			if !errors.Is(d.Err(), ErrMalformed) {
				t.Fatalf("got %v, want ErrMalformed", d.Err())
			}
			return
		}
		var e Encoder
		e.String(s)
		e.Bool(b)
		e.Uint64(v)
		n := e.Len()
		if len(in) < n {
			t.Fatalf("%d encoded bytes from %d input bytes", n, len(in))
		}
		again := NewDecoder(bytes.NewReader(e.Bytes()))
		if again.String(64) != s || again.Bool() != b || again.Uint64() != v || again.Err() != nil {
			t.Fatalf("%q %v %d differ after a second decoding", s, b, v)
		}
	})
}
