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
	// number of bytes of the disk that one read fetches
	streamStep = 1 << 20
	streamSpan = 1 << 30 // number of bytes of the disk whose extents one call requests
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
	ctx context.Context // ends reads of src
	src disk.Source     // disk to convert

	stretches        []stretch // all clusters with data, ascending
	tables           []int64   // numbers of the L2 tables in use, ascending
	blocks           int64     // number of refcount blocks, of a cluster each
	refTableClusters int64     // length of the refcount table in clusters
	l1               int64     // length of the L1 table in clusters
	data             int64     // number of clusters with data

	at   int64  // number of the file's cluster that is generated next
	buf  []byte // memory of streamStep bytes
	rest []byte // unread part of buf
	done int64  // number of bytes of the disk before the current position
}

// A stretch is a run of clusters of the disk with data.
type stretch struct {
	first, count int64 // on the disk
	before       int64 // number of clusters with data before the stretch
}

// NewStream returns a stream of src. It requests all extents of src, which must not change until the
// stream is read.
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

// addStretch adds the clusters from first to end. It must be called in ascending order; clusters that
// were added before are ignored.
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

// addTables adds the tables that map the clusters from first to end.
func (s *Stream) addTables(first, end int64) {
	for t := first / entriesPerL2; t <= (end-1)/entriesPerL2; t++ {
		if n := len(s.tables); n == 0 || s.tables[n-1] < t {
			s.tables = append(s.tables, t)
		}
	}
}

// blocksAt returns the position of the refcount blocks in clusters of the file.
func (s *Stream) blocksAt() int64 { return 1 + s.refTableClusters }

// l1At returns the position of the L1 table in clusters of the file.
func (s *Stream) l1At() int64 { return s.blocksAt() + s.blocks }

// l2At returns the position of the L2 tables in clusters of the file.
func (s *Stream) l2At() int64 { return s.l1At() + s.l1 }

// dataAt returns the position of the disk's data in clusters of the file.
func (s *Stream) dataAt() int64 { return s.l2At() + int64(len(s.tables)) }

// clusterCount returns the length of the file in clusters.
func (s *Stream) clusterCount() int64 { return s.dataAt() + s.data }

// Size returns the length of the stream in bytes.
func (s *Stream) Size() int64 { return s.clusterCount() * clusterSize }

// Done returns the number of bytes of the disk that were read.
func (s *Stream) Done() int64 { return s.done }

// Read returns the next bytes of the image. It is not safe for concurrent use.
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

// fillBuffer generates the next cluster of a table, or reads the next clusters of the disk.
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

// newHeader returns the header of the image.
func (s *Stream) newHeader() *header {
	return &header{
		version: 3, length: headerV3, clusterBits: clusterBits, size: s.src.Size(),
		l1Entries: uint32(ceilDiv(ceilDiv(s.src.Size(), clusterSize), entriesPerL2)), l1Offset: s.l1At() * clusterSize,
		refTable: clusterSize, refTableCount: uint32(s.refTableClusters),
	}
}

// writeList fills b with cluster n of a table of so many 8-byte entries.
func (s *Stream) writeList(b []byte, n, entries int64, entry func(int64) uint64) {
	for i := n * entriesPerL2; i < min(entries, (n+1)*entriesPerL2); i++ {
		binary.BigEndian.PutUint64(b[i%entriesPerL2*8:], entry(i))
	}
}

// tableEntry returns the L1 entry of an L2 table; 0 if the table is not in use.
func (s *Stream) tableEntry(table int64) uint64 {
	i, used := slices.BinarySearch(s.tables, table)
	if !used {
		return 0
	}
	return uint64(s.l2At()+int64(i))*clusterSize | copied
}

// mapTable fills b with an L2 table.
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

// copyData reads the next clusters with data, up to streamStep bytes of one stretch.
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
