package manifest

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/decamp/decamp/internal/fault"
)

// A kind is the effect of a record on its chunks. Its values are part of the file format.
type kind uint8

const (
	kindHashes kind = 1 // the chunks are durable; the payload has a hash for each
	kindZeros  kind = 2 // the chunks are durable and all zeros; no payload
	kindDrop   kind = 3 // the chunks are not durable any more; no payload
	kindSeal   kind = 4 // all chunks are durable and in chunk order; the payload is the root
)

const (
	recordHead = 24                 // length of a record before its payload, in bytes
	maxHashes  = 1 << 15            // largest number of chunks of one record with hashes: a payload of 1 MiB
	hashLen    = int64(len(Hash{})) // length of a hash in bytes
)

// A record describes a record of the file without its payload. MaxSize ensures that 32 bits are enough
// for chunk numbers.
type record struct {
	off   int64  // offset of the payload in the file
	first uint32 // number of the first chunk
	count uint32 // number of chunks
	kind  kind   // effect on the chunks
}

// end returns the number of the first chunk after r.
func (r record) end() uint32 { return r.first + r.count }

// A position is the boundary between two records. Its sum is the CRC-32C of all bytes before it except
// the checksums themselves. Each checksum continues the previous one. Therefore a record is valid only
// at its position in its log, and remains of an earlier log are detected.
type position struct {
	off int64  // offset of the next record in the file
	sum uint32 // checksum so far
}

// appendRecord appends a record to b, and moves t behind it.
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

// errTorn means that no complete record follows: the file was truncated, overwritten or damaged there.
var errTorn = errors.New("no whole record")

// A scanner reads records from front to back. Its position is after the last complete record.
type scanner struct {
	position
	r      *bufio.Reader // the file from the first record
	chunks int64         // number of chunks of the disk
	buf    []byte        // memory for one record
}

// newScanner returns a scanner of the records that follow t in f.
func newScanner(f io.ReaderAt, t position, chunks int64) *scanner {
	rest := io.NewSectionReader(f, t.off, 1<<62-t.off)
	return &scanner{position: t, r: bufio.NewReaderSize(rest, 256<<10), chunks: chunks}
}

// nextRecord returns the next record and its payload, which is valid until the next call. The error is
// io.EOF after the last record, errTorn for a damaged one, fault.Unsupported for a complete record of
// unknown kind, or the error of reading the file.
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

// fillBuffer reads n bytes into the buffer at index at. It returns io.EOF only if the file ends before
// the first byte of a record.
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

// parseRecord parses a record whose checksum is right. b is the record without the checksum.
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
			WithHint("use the version of decamp that wrote it, or a newer one")
	}
	if checkSpan(first, count, s.chunks) != nil || payload != want {
		return record{}, errTorn
	}
	return record{kind: kind(k), first: uint32(first), count: uint32(count), off: s.off + recordHead}, nil
}

// tornAt returns errTorn with the current offset.
func (s *scanner) tornAt() error { return fmt.Errorf("%w at byte %d", errTorn, s.off) }
