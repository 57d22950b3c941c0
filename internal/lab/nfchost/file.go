package nfchost

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	diskFile   = 2    // file type of a disk in OPEN_FILE
	flagsRead  = 0x1e // flags of OPEN_FILE for reading
	flagsWrite = 0x1a // flags of OPEN_FILE for writing
	sectorSize = 512  // bytes; reads are whole sectors

	geometryHeads   = 255       // heads in the reply to OPEN_FILE
	geometrySectors = 63        // sectors per track in the reply to OPEN_FILE
	maxCylinders    = 1<<32 - 1 // the reply has 32 bits for the cylinders

	// firstHandle resembles the kernel pointers that real handles seem to be.
	firstHandle = 0xffffffff80002a00

	minChunk  = 128 * sectorSize // smallest chunk of QUERY_ALLOCATED_BLOCKS, in bytes
	maxChunks = 512 << 10        // most chunks of one QUERY_ALLOCATED_BLOCKS
	mapUnit   = 4                // size of the bitmap is a multiple of this, in bytes
)

// openFile opens the disk of the session for reading. A second disk is refused: no description covers
// it.
func (s *session) openFile(q *request) ([]byte, error) {
	switch flags := q.u32(20); {
	case q.u32(16) != diskFile:
		return nil, Refuse("file type %d", q.u32(16))
	case flags == flagsWrite:
		return nil, &Refusal{Code: CodeReadOnly, Text: "the ticket is read-only"}
	case flags != flagsRead:
		return nil, Refuse("flags %#x", flags)
	case s.disk != nil:
		return nil, Refuse("a file is open")
	}
	d, err := s.grant.Open(q.trailer)
	if err != nil {
		return nil, asRefusal(err)
	}
	s.disk, s.path = d, q.trailer
	s.handle = firstHandle | uint64(q.opID&0xff)
	return s.openFileReply(q), nil
}

// openFileReply returns the payload of the reply to OPEN_FILE: handle, capacity and geometry.
func (s *session) openFileReply(q *request) []byte {
	p := make([]byte, openFileSize)
	le := binary.LittleEndian
	le.PutUint64(p[8:], s.handle) // the status at 0 is 0
	le.PutUint32(p[16:], diskFile)
	le.PutUint32(p[20:], q.u32(20))             // flags, as requested
	le.PutUint64(p[28:], uint64(s.disk.Size())) // capacity in bytes
	le.PutUint32(p[36:], sectorSize)
	cylinders := s.disk.Size() / (geometryHeads * geometrySectors * sectorSize)
	le.PutUint32(p[40:], uint32(min(cylinders, maxCylinders)))
	le.PutUint32(p[44:], geometryHeads)
	le.PutUint32(p[48:], geometrySectors)
	return p
}

// closeFile closes the disk. The reply is zero.
func (s *session) closeFile(q *request) ([]byte, error) {
	if err := s.checkHandle(q); err != nil {
		return nil, err
	}
	s.closeDisk()
	return make([]byte, s.payloadSize(q)), nil
}

// checkHandle returns a Refusal unless the request names the handle of the open disk.
func (s *session) checkHandle(q *request) error {
	if s.disk == nil || q.u64(0) != s.handle {
		return Refuse("handle %#x is not open", q.u64(0))
	}
	return nil
}

// diskEntry answers DDB_GET with the value as text. The length is 0 if the key does not exist.
func (s *session) diskEntry(q *request) ([]byte, error) {
	if err := s.checkHandle(q); err != nil {
		return nil, err
	}
	value := s.disk.Entry(q.trailer)
	p := make([]byte, 12)
	return append(binary.LittleEndian.AppendUint32(p, uint32(len(value))), value...), nil
}

// allocatedBlocks answers QUERY_ALLOCATED_BLOCKS with a bitmap, lowest bit first, padded to words of
// four bytes. The start is the field at 24. A client that writes it to the field at 8 gets zeros, as
// from real hosts.
func (s *session) allocatedBlocks(q *request) ([]byte, error) {
	if err := s.checkHandle(q); err != nil {
		return nil, err
	}
	chunk, start, count := q.u64(16), q.u64(24), q.u64(32)
	if chunk < minChunk || chunk%sectorSize != 0 || chunk > 1<<40 || count == 0 || count > maxChunks || start%chunk != 0 || start > 1<<62 ||
		start+chunk*count > uint64(s.disk.Size()) {
		return nil, Refuse("chunks of %d: %d from %d on", chunk, count, start)
	}
	s.server.updateStats(func(st *Stats) { st.MapQueries++ })
	bitmap := make([]byte, (count+8*mapUnit-1)/(8*mapUnit)*mapUnit)
	if q.u64(8) == 0 { // otherwise the client uses the wrong field for the start
		if err := s.markAreas(bitmap, int64(start), int64(chunk), int64(count)); err != nil {
			return nil, asRefusal(err)
		}
	}
	if s.rules.DirtyTail {
		for i := count; i < uint64(len(bitmap))*8; i++ {
			bitmap[i/8] |= 1 << (i % 8)
		}
	}
	p := make([]byte, mapSize)
	binary.LittleEndian.PutUint64(p[32:], count)
	return append(p, bitmap...), nil
}

// markAreas sets the bit of each chunk that contains data.
func (s *session) markAreas(bitmap []byte, start, chunk, count int64) error {
	areas, err := s.disk.Allocated(start, chunk*count)
	if err != nil {
		return err
	}
	for _, a := range areas {
		for i := max(0, (a.Offset-start)/chunk); i < count && start+i*chunk < a.Offset+a.Length; i++ {
			bitmap[i/8] |= 1 << (i % 8)
		}
	}
	return nil
}

// asRefusal converts an error to a Refusal, except errCut, which ends the connection.
func asRefusal(err error) error {
	var r *Refusal
	if errors.As(err, &r) || errors.Is(err, errCut) {
		return err
	}
	return fmt.Errorf("%w", Refuse("%v", err))
}
