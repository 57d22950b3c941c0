// Package xdr encodes and decodes XDR (RFC 4506) and the frame around it: calls and replies
// of ONC RPC version 2 over TCP (RFC 5531). The emulator's NFS client and the server that tests
// it are built on it. It is written from the RFCs and shares no code with decamp's
// server, so that it finds the server's mistakes: everything that the RFCs forbid is an error here.
package xdr

import (
	"encoding/binary"
	"fmt"
)

// align is the unit of XDR: everything is padded to it with zeros (RFC 4506 section 3).
const align = 4

// Encoder appends XDR to B. The zero value is ready for use.
type Encoder struct{ B []byte }

// Uint32 appends an unsigned integer or an enum.
func (e *Encoder) Uint32(v uint32) { e.B = binary.BigEndian.AppendUint32(e.B, v) }

// Uint64 appends an unsigned hyper.
func (e *Encoder) Uint64(v uint64) { e.B = binary.BigEndian.AppendUint64(e.B, v) }

// Bool appends TRUE or FALSE.
func (e *Encoder) Bool(v bool) {
	if v {
		e.Uint32(1)
		return
	}
	e.Uint32(0)
}

// Fixed appends opaque data whose length both ends know, with padding.
func (e *Encoder) Fixed(p []byte) {
	e.B = append(e.B, p...)
	e.B = append(e.B, make([]byte, Pad(len(p)))...)
}

// Opaque appends a length and the data, with padding.
func (e *Encoder) Opaque(p []byte) {
	e.Uint32(uint32(len(p)))
	e.Fixed(p)
}

// String appends a string.
func (e *Encoder) String(s string) { e.Opaque([]byte(s)) }

// Pad returns the number of zeros after n bytes of opaque data.
func Pad(n int) int { return (align - n%align) % align }

// Decoder decodes XDR. After the first error, all methods return zero values, so that the caller checks
// Err or End once.
type Decoder struct {
	b   []byte // message
	off int    // offset of the next byte
	err error  // first error
}

// NewDecoder returns a decoder of b. Decoded data refers to b.
func NewDecoder(b []byte) *Decoder { return &Decoder{b: b} }

// Fail records an error with the offset, unless an earlier error is recorded.
func (d *Decoder) Fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("XDR at byte %d of %d: %w", d.off, len(d.b), fmt.Errorf(format, args...))
	}
}

// Err returns the first error.
func (d *Decoder) Err() error { return d.err }

// Len returns the number of remaining bytes.
func (d *Decoder) Len() int { return len(d.b) - d.off }

// End returns the first error, or one if bytes are left.
func (d *Decoder) End() error {
	if n := d.Len(); n != 0 {
		d.Fail("%d bytes after the end of the message", n)
	}
	return d.err
}

// takeBytes consumes n bytes. It returns nil if fewer remain.
func (d *Decoder) takeBytes(n int) []byte {
	if d.err == nil && n > d.Len() {
		d.Fail("want %d bytes, there are %d", n, d.Len())
	}
	if d.err != nil {
		return nil
	}
	p := d.b[d.off : d.off+n : d.off+n]
	d.off += n
	return p
}

// Uint32 decodes an unsigned integer or an enum.
func (d *Decoder) Uint32() uint32 {
	if p := d.takeBytes(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

// Uint64 decodes an unsigned hyper.
func (d *Decoder) Uint64() uint64 {
	if p := d.takeBytes(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

// Bool decodes a boolean; any value other than 0 and 1 is an error (RFC 4506 section 4.4).
func (d *Decoder) Bool() bool {
	v := d.Uint32()
	if v > 1 {
		d.Fail("boolean %d", v)
	}
	return v == 1
}

// Fixed decodes n bytes and their padding, which must be zero (RFC 4506 section 4.9).
func (d *Decoder) Fixed(n int) []byte {
	p := d.takeBytes(n)
	for _, b := range d.takeBytes(Pad(n)) {
		if b != 0 {
			d.Fail("padding is not zero")
		}
	}
	return p
}

// Opaque decodes a length of at most limit and the data.
func (d *Decoder) Opaque(limit int) []byte {
	n := d.Uint32()
	if int64(n) > int64(limit) {
		d.Fail("%d bytes of data, at most %d are allowed", n, limit)
		return nil
	}
	return d.Fixed(int(n))
}

// String decodes a string of at most limit bytes.
func (d *Decoder) String(limit int) string { return string(d.Opaque(limit)) }
