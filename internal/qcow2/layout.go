package qcow2

import (
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// What we write: 64 KiB clusters, qemu's default, keep copy-on-write of later snapshots
// cheap; 16-bit refcounts.
const (
	clusterBits = 16               // 64 KiB, qemu's default: later snapshots need little copying
	clusterSize = 1 << clusterBits // size of a cluster in bytes

	entriesPerL2   = clusterSize / 8 // number of clusters that an L2 table maps; entries have 8 bytes
	countsPerBlock = clusterSize / 2 // number of clusters that a refcount block counts; refcounts have 16 bits

	// alignment of the data in the file. 1 MiB suits RAID stripes, thin pools and partitions.
	dataAlign = 1 << 20
)

// A layout has the positions of all parts of the file for a disk of size bytes. Regions are ranges of
// the file and consist of whole clusters.
type layout struct {
	size     int64 // size of the disk in bytes
	clusters int64 // number of clusters of the disk; the last may be partial

	refTable  disk.Range // refcount table
	refBlocks disk.Range // refcount blocks
	l1        disk.Range // L1 table
	l2        disk.Range // L2 tables for the whole disk
	data      disk.Range // the disk; its byte n is at data.Off + n
}

// newLayout returns the layout of a new file: tables, then data. A disk of more than 2 PiB is
// fault.Unsupported.
func newLayout(size int64) (layout, error) {
	l := layout{size: size, clusters: ceilDiv(size, clusterSize)}
	if size <= 0 || l.tablesNeeded() > maxL1/8 {
		return layout{}, fault.New(fault.Unsupported, "qcow2 image of %d bytes", size).
			WithHint("use a raw image: a qcow2 image holds up to 2 PiB")
	}
	l.fitRefBlocks(func(blocks int64) {
		end := ceilDiv(l.placeTables(clusterSize, blocks), dataAlign) * dataAlign
		l.data = disk.Range{Off: end, Len: l.clusters * clusterSize}
	})
	return l, nil
}

// layoutAt returns the layout of a file whose data begins at offset data; 0 is the offset of newLayout.
// If the disk was smaller once, larger tables have no space before the data and follow it.
func layoutAt(size, data int64) (layout, error) {
	l, err := newLayout(size)
	if err != nil || data == 0 || data == l.data.Off {
		return l, err
	}
	if data < 0 || data%dataAlign != 0 || data > l.data.Off {
		return layout{}, fault.New(fault.Corrupt, "qcow2 image of %d bytes with its data at %#x", size, data)
	}
	l.data.Off = data
	l.fitRefBlocks(func(blocks int64) { l.placeTables(l.data.End(), blocks) })
	return l, nil
}

// fitRefBlocks calls place with increasing numbers of refcount blocks until they count all clusters of
// the file, including their own.
func (l *layout) fitRefBlocks(place func(blocks int64)) {
	for blocks := int64(1); ; {
		place(blocks)
		need := ceilDiv(l.end(), countsPerBlock*clusterSize)
		if need == blocks {
			return
		}
		blocks = need
	}
}

// placeTables places the tables one after the other from off, and returns the offset at which they end.
func (l *layout) placeTables(off, blocks int64) (end int64) {
	region := func(bytes int64) disk.Range {
		r := disk.Range{Off: off, Len: ceilDiv(bytes, clusterSize) * clusterSize}
		off = r.End()
		return r
	}
	l.refTable = region(blocks * 8)
	l.refBlocks = region(blocks * clusterSize)
	l.l1 = region(l.tablesNeeded() * 8)
	l.l2 = region(l.tablesNeeded() * clusterSize)
	return off
}

// tablesNeeded returns the number of L2 tables that map the disk.
func (l *layout) tablesNeeded() int64 { return ceilDiv(l.clusters, entriesPerL2) }

// end returns the length of the file in bytes.
func (l *layout) end() int64 { return max(l.data.End(), l.l2.End()) }

// newHeader returns the header of a file with this layout.
func (l *layout) newHeader() *header {
	return &header{
		version:       3,
		length:        headerV3,
		clusterBits:   clusterBits,
		size:          l.size,
		l1Entries:     uint32(l.tableCount()),
		l1Offset:      l.l1.Off,
		refTable:      l.refTable.Off,
		refTableCount: uint32(l.refTable.Len / clusterSize),
	}
}

// tableCount returns the number of L2 tables in the layout.
func (l *layout) tableCount() int64 { return l.l2.Len / clusterSize }

// tableRange returns the range of the disk that table i maps, in whole clusters.
func (l *layout) tableRange(i int64) disk.Range {
	const span = entriesPerL2 * clusterSize
	return disk.Range{Off: i * span, Len: min(span, l.data.Len-i*span)}
}

// blockRange returns the range of the file that refcount block i counts.
func (l *layout) blockRange(i int64) disk.Range {
	const span = countsPerBlock * clusterSize
	return disk.Range{Off: i * span, Len: min(span, l.end()-i*span)}
}

// inFile returns the range of the file that contains r of the disk.
func (l *layout) inFile(r disk.Range) disk.Range {
	return disk.Range{Off: l.data.Off + r.Off, Len: r.Len}
}
