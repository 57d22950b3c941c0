package xdr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// wordSize is the unit of XDR in bytes: every item is a multiple of it (RFC 4506 section 3).
const wordSize = 4

// ErrMalformed reports bytes that are not a valid encoding of the expected value.
var ErrMalformed = errors.New("malformed XDR")

// A Decoder decodes values from a stream. After an error it returns zeros; Err returns the first error.
// It is not safe for concurrent use.
type Decoder struct {
	r   io.Reader          // stream of encoded bytes
	err error              // first error
	tmp [2 * wordSize]byte // buffer for one integer
}

// NewDecoder returns a Decoder of r.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{r: r} }

// Err returns the first error: ErrMalformed, also for a stream that ends early, or an error of the
// stream.
func (d *Decoder) Err() error { return d.err }

// Fail records that a decoded value is impossible, for instance an unknown member of a union. It has no
// effect after another error.
func (d *Decoder) Fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
}

// Read fills p with raw bytes, or with zeros after an error.
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

// Uint32 decodes an unsigned integer or an enumeration.
func (d *Decoder) Uint32() uint32 {
	d.Read(d.tmp[:wordSize])
	return binary.BigEndian.Uint32(d.tmp[:])
}

// Uint64 decodes an unsigned hyper integer.
func (d *Decoder) Uint64() uint64 {
	d.Read(d.tmp[:])
	return binary.BigEndian.Uint64(d.tmp[:])
}

// Bool decodes a boolean. Values other than 0 and 1 are malformed.
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

// Length decodes the length of opaque data. A length above limit is malformed.
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

// Pad skips the padding after n bytes of opaque data.
func (d *Decoder) Pad(n int) { d.Read(d.tmp[:padding(n)]) }

// Opaque decodes opaque data of at most limit bytes. It returns new memory, or nil for no bytes.
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

// String decodes a string of at most limit bytes. It may not be UTF-8.
func (d *Decoder) String(limit int) string { return string(d.Opaque(limit)) }

// padding returns the bytes that fill n up to whole words.
func padding(n int) int { return -n & (wordSize - 1) }
