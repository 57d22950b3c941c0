package qcow2

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

const (
	// streamStep is how much of a disk is read at once, in bytes, and streamSpan how much is described.
	streamStep = 1 << 20
	streamSpan = 1 << 30
)

// A Stream is an image that is generated while it is read, from front to back, for uploads:
//
//	header | refcount table | refcount blocks | L1 | L2 tables in use | clusters with data
//
// It contains only the described data, without gaps. Its size is known before its first byte, and it is read
// once. It is of version 3, with clusters of 64 KiB and no optional features.
//
// Memory: 1 MiB, and 24 bytes for each stretch of data.
type Stream struct {
	ctx context.Context
	src disk.Source

	stretches        []stretch
	tables           []int64 // the L2 tables that are in use, ascending
	blocks           int64   // clusters of refcount blocks
	refTableClusters int64   // offset of the refcount table
	l1               int64   // offset of the L1 table
	data             int64   // offset of the disk's data

	at   int64 // cluster of the file that is next
	buf  []byte
	rest []byte // unread part of buf
	done int64  // bytes of the disk that are behind it
}

// A stretch is clusters of the disk with data, one after the other.
type stretch struct {
	first, count int64 // on the disk
	before       int64 // how many clusters with data come before
}

// NewStream describes src, which has to stay as it is until the stream is read.
func NewStream(ctx context.Context, src disk.Source) (*Stream, error) {
	s := &Stream{ctx: ctx, src: src, buf: disk.AlignedMemory(streamStep)}
	clusters := ceilDiv(src.Size(), clusterSize)
	s.l1 = ceilDiv(ceilDiv(clusters, entriesPerL2)*8, clusterSize)
	if src.Size() <= 0 || s.l1*clusterSize > maxL1 {
		return nil, fault.New(fault.Unsupported, "qcow2 stream of %d bytes", src.Size()).WithHint("send it raw: a qcow2 image holds up to 2 PiB")
	}
	if err := s.scanData(); err != nil {
		return nil, err
	}
	for s.blocks = 1; ; s.blocks = ceilDiv(s.clusterCount(), countsPerBlock) { // the blocks count their own clusters as well
		s.refTableClusters = ceilDiv(s.blocks*8, clusterSize)
		if ceilDiv(s.clusterCount(), countsPerBlock) == s.blocks {
			return s, nil
		}
	}
}

// scanData finds the clusters with data, and the tables that map them.
func (s *Stream) scanData() error {
	for off := int64(0); off < s.src.Size(); off += streamSpan {
		extents, err := s.src.Extents(s.ctx, disk.Range{Off: off, Len: min(streamSpan, s.src.Size()-off)})
		if err != nil {
			return err
		}
		for _, e := range extents {
			if e.Kind == disk.Data && e.Len > 0 {
				s.addStretch(e.Off/clusterSize, ceilDiv(e.End(), clusterSize))
			}
		}
	}
	return nil
}

// addStretch takes the clusters from first to end in. Its callers go forward.
func (s *Stream) addStretch(first, end int64) {
	if n := len(s.stretches); n > 0 {
		last := &s.stretches[n-1]
		first = max(first, last.first+last.count)
		if first == last.first+last.count && end > first { // the extent continues the last one
			last.count = end - last.first
			s.data += end - first
			s.addTables(first, end)
			return
		}
	}
	if end > first {
		s.stretches = append(s.stretches, stretch{first, end - first, s.data})
		s.data += end - first
		s.addTables(first, end)
	}
}

// addTables notes the tables that map clusters.
func (s *Stream) addTables(first, end int64) {
	for t := first / entriesPerL2; t <= (end-1)/entriesPerL2; t++ {
		if n := len(s.tables); n == 0 || s.tables[n-1] < t {
			s.tables = append(s.tables, t)
		}
	}
}

// The places of the regions, in clusters of the file.
func (s *Stream) blocksAt() int64     { return 1 + s.refTableClusters }
func (s *Stream) l1At() int64         { return s.blocksAt() + s.blocks }
func (s *Stream) l2At() int64         { return s.l1At() + s.l1 }
func (s *Stream) dataAt() int64       { return s.l2At() + int64(len(s.tables)) }
func (s *Stream) clusterCount() int64 { return s.dataAt() + s.data }

// Size is how many bytes the stream has.
func (s *Stream) Size() int64 { return s.clusterCount() * clusterSize }

// Done returns the number of bytes of the disk that were read.
func (s *Stream) Done() int64 { return s.done }

// Read returns the next bytes. It is not safe for concurrent use.
func (s *Stream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		if err := s.fillBuffer(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// fillBuffer makes the next clusters: one of a table, or some of the disk.
func (s *Stream) fillBuffer() error {
	if s.at == s.clusterCount() {
		s.done = s.src.Size()
		return io.EOF
	}
	if s.at >= s.dataAt() {
		return s.copyData()
	}
	b := s.buf[:clusterSize]
	clear(b)
	switch at := s.at; {
	case at == 0:
		copy(b, s.newHeader().encode())
	case at < s.blocksAt():
		s.writeList(b, at-1, s.blocks, func(i int64) uint64 { return uint64(s.blocksAt()+i) * clusterSize })
	case at < s.l1At():
		for i := range min(countsPerBlock, s.clusterCount()-(at-s.blocksAt())*countsPerBlock) {
			binary.BigEndian.PutUint16(b[i*2:], 1)
		}
	case at < s.l2At():
		s.writeList(b, at-s.l1At(), ceilDiv(ceilDiv(s.src.Size(), clusterSize), entriesPerL2), s.tableEntry)
	default:
		s.mapTable(b, s.tables[at-s.l2At()])
	}
	s.rest = b
	s.at++
	return nil
}

func (s *Stream) newHeader() *header {
	return &header{
		version: 3, length: headerV3, clusterBits: clusterBits, size: s.src.Size(),
		l1Entries: uint32(ceilDiv(ceilDiv(s.src.Size(), clusterSize), entriesPerL2)), l1Offset: s.l1At() * clusterSize,
		refTable: clusterSize, refTableCount: uint32(s.refTableClusters),
	}
}

// writeList writes the n-th cluster of a list of so many entries.
func (s *Stream) writeList(b []byte, n, entries int64, entry func(int64) uint64) {
	for i := n * entriesPerL2; i < min(entries, (n+1)*entriesPerL2); i++ {
		binary.BigEndian.PutUint64(b[i%entriesPerL2*8:], entry(i))
	}
}

// tableEntry is that of the L1 table for an L2 table.
func (s *Stream) tableEntry(table int64) uint64 {
	i, used := slices.BinarySearch(s.tables, table)
	if !used {
		return 0
	}
	return uint64(s.l2At()+int64(i))*clusterSize | copied
}

// mapTable writes an L2 table.
func (s *Stream) mapTable(b []byte, table int64) {
	first, end := table*entriesPerL2, (table+1)*entriesPerL2
	from := sort.Search(len(s.stretches), func(i int) bool { return s.stretches[i].first+s.stretches[i].count > first })
	for _, each := range s.stretches[from:] {
		if each.first >= end {
			return
		}
		for c := max(first, each.first); c < min(end, each.first+each.count); c++ {
			at := s.dataAt() + each.before + c - each.first
			binary.BigEndian.PutUint64(b[(c-first)*8:], uint64(at)*clusterSize|copied)
		}
	}
}

// copyData reads the next clusters of a stretch.
func (s *Stream) copyData() error {
	next := s.at - s.dataAt()
	i := sort.Search(len(s.stretches), func(i int) bool { return s.stretches[i].before+s.stretches[i].count > next })
	each := s.stretches[i]
	c := each.first + next - each.before
	n := min(streamStep/clusterSize, each.first+each.count-c)
	b := s.buf[:n*clusterSize]
	off := c * clusterSize
	length := min(int64(len(b)), s.src.Size()-off)
	if err := s.src.ReadAt(s.ctx, b[:length], off); err != nil {
		return fmt.Errorf("at %#x: %w", off, err)
	}
	clear(b[length:]) // bytes of the last cluster past the end of the disk
	s.rest, s.at, s.done = b, s.at+n, off+length
	return nil
}
