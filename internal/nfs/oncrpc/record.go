package oncrpc

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Record marking (RFC 5531 section 11): a record is one or more fragments, each with a
// header of 4 bytes: the fragment's length, and in the highest bit whether it is the last.
const (
	markSize     = 4       // bytes of a fragment header
	lastFragment = 1 << 31 // flag in the fragment header: the record ends with this fragment

	// maxFragments bounds the fragments of a record, which may be empty. Senders use fragments of a few
	// KiB at least.
	maxFragments = 1024

	// headBytes is the length of the beginning that separates calls with the same xid. It covers the
	// arguments of nearly every call, and the first data of a WRITE.
	headBytes = 256
)

// errRecord reports a stream that is not RPC, or exceeds a bound.
var errRecord = errors.New("not an RPC record")

// record is the body of one record, read from the stream on demand. A datagram is a record that is
// complete from the start.
type record struct {
	r     *bufio.Reader // stream of records; kept from one record to the next
	max   int           // bytes that further fragments may have
	left  int           // bytes of the current fragment that were not read yet
	last  bool          // the current fragment is the last one
	count int           // fragments read so far
	err   error         // first error of the stream; the connection is unusable after it

	head  [headBytes]byte // first bytes of the record that were read through Read
	headN int             // valid bytes in head
}

// beginRecord waits for the next record. It returns io.EOF if the stream ends before it. limit bounds
// the record in bytes.
func (r *record) beginRecord(limit int) error {
	*r = record{r: r.r, max: limit}
	return r.nextFragment()
}

// nextFragment reads the header of the next fragment. It fails if the record exceeds its bounds.
func (r *record) nextFragment() error {
	var mark [markSize]byte
	if _, err := io.ReadFull(r.r, mark[:]); err != nil {
		if r.count > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return r.setError(err)
	}
	v := binary.BigEndian.Uint32(mark[:])
	r.left, r.last = int(v&^lastFragment), v&lastFragment != 0
	r.count++
	if r.left > r.max || r.count > maxFragments {
		return r.setError(fmt.Errorf("%w: fragment %d has %d bytes, %d are allowed", errRecord, r.count, r.left, r.max))
	}
	r.max -= r.left
	return nil
}

// setError stores and returns err, the first error of the stream.
func (r *record) setError(err error) error {
	r.err = err
	return err
}

// Read is part of io.Reader. It returns io.EOF at the end of the record, and io.ErrUnexpectedEOF if the
// stream ends within it.
func (r *record) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	for r.left == 0 {
		if r.last {
			return 0, io.EOF
		}
		if err := r.nextFragment(); err != nil {
			return 0, err
		}
	}
	n, err := r.r.Read(p[:min(len(p), r.left)])
	r.left -= n
	r.headN += copy(r.head[r.headN:], p[:n])
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return n, r.setError(err)
	}
	return n, nil
}

// skipRest discards the rest of the record.
func (r *record) skipRest() error {
	for {
		if r.left > 0 {
			n, err := r.r.Discard(r.left)
			r.left -= n
			if err != nil {
				return r.setError(err)
			}
		}
		if r.last {
			return nil
		}
		if err := r.nextFragment(); err != nil {
			return err
		}
	}
}

// firstBytes returns the first bytes that were read of the record. It is valid until the next
// beginRecord.
func (r *record) firstBytes() []byte { return r.head[:r.headN] }
