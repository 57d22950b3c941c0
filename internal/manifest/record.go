package manifest

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/decamp/decamp/internal/fault"
)

// kind is the effect of a record on its chunks. Numbers are part of the file format.
type kind uint8

const (
	kindHashes kind = 1 // safe, one hash each in the payload
	kindZeros  kind = 2 // safe and all zeros; no payload
	kindDrop   kind = 3 // no longer safe; no payload
	kindSeal   kind = 4 // all safe and above in chunk order; the payload is the root
)

const (
	recordHead = 24      // bytes of a record before its payload
	maxHashes  = 1 << 15 // chunks in one hashes record: a payload of 1 MiB
	hashLen    = int64(len(Hash{}))
)

// A record without its payload. MaxSize makes 32 bits enough.
type record struct {
	off   int64 // offset of the payload in the file
	first uint32
	count uint32
	kind  kind
}

func (r record) end() uint32 { return r.first + r.count }

// A tail is a position between two records: the start of the next one, and the CRC-32C of all bytes
// before it except the checksums themselves. Each checksum continues the previous one, so a record is
// valid only at its position in its log, and remains of an earlier log are detected.
type position struct {
	off int64
	sum uint32
}

// appendRecord appends a record to b and moves t behind it.
func (t *position) appendRecord(b []byte, k kind, first, count int64, hashes []Hash) []byte {
	start := len(b)
	b = le.AppendUint32(b, uint32(k))
	b = le.AppendUint32(b, uint32(len(hashes))*uint32(hashLen))
	b = le.AppendUint64(b, uint64(first))
	b = le.AppendUint64(b, uint64(count))
	for i := range hashes {
		b = append(b, hashes[i][:]...)
	}
	t.sum = crc32.Update(t.sum, castagnoli, b[start:])
	b = le.AppendUint32(b, t.sum)
	t.off += int64(len(b) - start)
	return b
}

// errTorn means that no complete record follows: the file was cut, filled or damaged there.
var errTorn = errors.New("no whole record")

// A scanner reads records from front to back. Its tail is behind the last whole one.
type scanner struct {
	position
	r      *bufio.Reader
	chunks int64
	buf    []byte // one record; at most recordHead + maxHashes*hashLen + sumLen
}

// newScanner reads the records that follow t in f.
func newScanner(f io.ReaderAt, t position, chunks int64) *scanner {
	rest := io.NewSectionReader(f, t.off, 1<<62-t.off)
	return &scanner{position: t, r: bufio.NewReaderSize(rest, 256<<10), chunks: chunks}
}

// nextRecord returns the next record and its payload, which is valid until the next call. The
// error is io.EOF after the last, errTorn where a record is damaged, Unsupported for a
// whole record of an unknown kind, or what reading the file gave.
func (s *scanner) nextRecord() (record, []byte, error) {
	if err := s.fillBuffer(0, recordHead); err != nil {
		return record{}, nil, err
	}
	n := int64(le.Uint32(s.buf[4:]))
	if n > maxHashes*hashLen {
		return record{}, nil, errTorn
	}
	if err := s.fillBuffer(recordHead, int(n)+sumLen); err != nil {
		return record{}, nil, err
	}
	end := recordHead + n
	sum := crc32.Update(s.sum, castagnoli, s.buf[:end])
	if le.Uint32(s.buf[end:]) != sum {
		return record{}, nil, errTorn
	}
	r, err := s.parseRecord(s.buf[:end])
	if err == nil {
		s.position = position{off: s.off + end + sumLen, sum: sum}
	}
	return r, s.buf[recordHead:end], err
}

// fillBuffer reads n bytes into the buffer at offset at. Only a file that ends before the
// first byte of a record ends well.
func (s *scanner) fillBuffer(at, n int) error {
	if need := at + n; need > len(s.buf) {
		s.buf = append(s.buf, make([]byte, need-len(s.buf))...)
	}
	_, err := io.ReadFull(s.r, s.buf[at:at+n])
	if errors.Is(err, io.ErrUnexpectedEOF) || (at > 0 && errors.Is(err, io.EOF)) {
		return errTorn
	}
	return err
}

// parseRecord reads the fields of a record whose checksum is right.
func (s *scanner) parseRecord(b []byte) (record, error) {
	k, payload := le.Uint32(b), int64(len(b)-recordHead)
	first, count := int64(le.Uint64(b[8:])), int64(le.Uint64(b[16:]))
	want := int64(0)
	switch kind(min(k, 0xff)) {
	case kindHashes:
		want = count * hashLen
	case kindZeros, kindDrop:
	case kindSeal:
		if first != 0 || count != s.chunks || payload != hashLen {
			return record{}, errTorn
		}
		return record{kind: kindSeal, count: uint32(count), off: s.off + recordHead}, nil
	default:
		return record{}, fault.New(fault.Unsupported, "record of unknown kind %d at byte %d", k, s.off).
			WithHint("use the newer decamp that wrote it")
	}
	if checkSpan(first, count, s.chunks) != nil || payload != want {
		return record{}, errTorn
	}
	return record{kind: kind(k), first: uint32(first), count: uint32(count), off: s.off + recordHead}, nil
}

// tornAt names the place of an errTorn.
func (s *scanner) tornAt() error { return fmt.Errorf("%w at byte %d", errTorn, s.off) }
