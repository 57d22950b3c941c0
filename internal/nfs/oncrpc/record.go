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
	markSize     = 4
	lastFragment = 1 << 31

	// maxFragments keeps a record from being fragments without bytes for ever. Senders cut
	// a record by their buffers, of a few KiB at least.
	maxFragments = 1024

	// headBytes is how much of a call tells it from others with the same xid. It takes in
	// the arguments of nearly every call, and of a WRITE the beginning of its data.
	headBytes = 256
)

// errRecord is a connection that does not speak RPC, or breaks a bound.
var errRecord = errors.New("not an RPC record")

// record is the body of one record, read from the stream as it is asked for. A datagram
// is a record that is complete from the beginning.
type record struct {
	r     *bufio.Reader
	max   int // bytes that may still come
	left  int // of the current fragment
	last  bool
	count int   // of fragments
	err   error // what the stream failed with; the connection is over

	head  [headBytes]byte
	headN int
}

// beginRecord waits for the next record. io.EOF means that there is none.
func (r *record) beginRecord(limit int) error {
	*r = record{r: r.r, max: limit}
	return r.nextFragment()
}

// nextFragment reads the header of the next fragment.
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

func (r *record) setError(err error) error {
	r.err = err
	return err
}

// Read is part of io.Reader. It returns io.EOF at the record's end, and the stream's own
// end as io.ErrUnexpectedEOF.
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

// skipRest reads to the record's end.
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

// firstBytes returns the first bytes of what was read of the record.
func (r *record) firstBytes() []byte { return r.head[:r.headN] }
