package xdr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// wordSize is what everything is a multiple of (RFC 4506 section 3).
const wordSize = 4

// ErrMalformed says that the bytes are not what was to be decoded from them.
var ErrMalformed = errors.New("malformed XDR")

// A Decoder takes values from a stream. After an error it returns zeros; Err has the
// first one.
type Decoder struct {
	r   io.Reader
	err error
	tmp [2 * wordSize]byte
}

// NewDecoder returns a Decoder of r.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{r: r} }

// Err returns the first error: ErrMalformed, also where the stream is too short, or what
// the stream itself failed with.
func (d *Decoder) Err() error { return d.err }

// Fail notes that a decoded value is impossible, for instance an unknown member of a union.
func (d *Decoder) Fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
}

// Read fills p with raw bytes.
func (d *Decoder) Read(p []byte) {
	if d.err != nil {
		clear(p)
		return
	}
	_, err := io.ReadFull(d.r, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: it ends too early", ErrMalformed)
	}
	if d.err = err; err != nil {
		clear(p)
	}
}

// Uint32 takes an unsigned integer, or an enumeration.
func (d *Decoder) Uint32() uint32 {
	d.Read(d.tmp[:wordSize])
	return binary.BigEndian.Uint32(d.tmp[:])
}

// Uint64 takes an unsigned hyper integer.
func (d *Decoder) Uint64() uint64 {
	d.Read(d.tmp[:])
	return binary.BigEndian.Uint64(d.tmp[:])
}

// Bool takes a boolean, which is 0 or 1.
func (d *Decoder) Bool() bool {
	switch v := d.Uint32(); v {
	case 0:
		return false
	case 1:
		return true
	default:
		d.Fail("boolean %d", v)
		return false
	}
}

// Length takes the length of opaque data of at most limit bytes.
func (d *Decoder) Length(limit int) int {
	n := d.Uint32()
	if d.err == nil && uint64(n) > uint64(limit) {
		d.Fail("%d bytes where %d are allowed", n, limit)
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

// Pad skips what fills up n bytes to whole words.
func (d *Decoder) Pad(n int) { d.Read(d.tmp[:padding(n)]) }

// Opaque takes opaque data of at most limit bytes.
func (d *Decoder) Opaque(limit int) []byte {
	n := d.Length(limit)
	if n == 0 {
		return nil
	}
	p := make([]byte, n)
	d.Read(p)
	d.Pad(n)
	if d.err != nil {
		return nil
	}
	return p
}

// String takes a string of at most limit bytes. They need not be UTF-8.
func (d *Decoder) String(limit int) string { return string(d.Opaque(limit)) }

func padding(n int) int { return -n & (wordSize - 1) }
