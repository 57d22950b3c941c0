package xdr

import (
	"encoding/binary"
	"slices"
)

// An Encoder appends values to a buffer. The zero value is ready.
type Encoder struct {
	buf []byte // encoded bytes; the memory is reused after Truncate
}

// Bytes returns the encoded bytes. They are valid until the next call of another method.
func (e *Encoder) Bytes() []byte { return e.buf }

// Len returns the number of encoded bytes.
func (e *Encoder) Len() int { return len(e.buf) }

// Truncate removes all but the first n bytes.
func (e *Encoder) Truncate(n int) { e.buf = e.buf[:n] }

// Uint32 appends an unsigned integer, or an enumeration.
func (e *Encoder) Uint32(v uint32) { e.buf = binary.BigEndian.AppendUint32(e.buf, v) }

// Uint64 appends an unsigned hyper integer.
func (e *Encoder) Uint64(v uint64) { e.buf = binary.BigEndian.AppendUint64(e.buf, v) }

// PutUint32 overwrites the word at offset off, which must be encoded already.
func (e *Encoder) PutUint32(off int, v uint32) { binary.BigEndian.PutUint32(e.buf[off:], v) }

// Bool appends a boolean.
func (e *Encoder) Bool(v bool) {
	if v {
		e.Uint32(1)
		return
	}
	e.Uint32(0)
}

// Raw appends bytes as they are: data of fixed length that needs no padding.
func (e *Encoder) Raw(p []byte) { e.buf = append(e.buf, p...) }

// Opaque appends opaque data of variable length.
func (e *Encoder) Opaque(p []byte) {
	e.Uint32(uint32(len(p)))
	e.Raw(p)
	e.Pad(len(p))
}

// String appends a string.
func (e *Encoder) String(s string) {
	e.Uint32(uint32(len(s)))
	e.buf = append(e.buf, s...)
	e.Pad(len(s))
}

// Pad appends the zeros after n bytes of opaque data.
func (e *Encoder) Pad(n int) {
	var zeros [wordSize]byte
	e.Raw(zeros[:padding(n)])
}

// Extend appends n bytes with undefined content, and returns them for the caller to fill. They are
// valid until the next call of another method.
func (e *Encoder) Extend(n int) []byte {
	e.buf = slices.Grow(e.buf, n)
	e.buf = e.buf[:len(e.buf)+n]
	return e.buf[len(e.buf)-n:]
}

// OpaqueSize returns the encoded size of n bytes of opaque data: length, data and padding.
func OpaqueSize(n int) int { return wordSize + n + padding(n) }
