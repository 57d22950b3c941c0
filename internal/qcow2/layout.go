package qcow2

import (
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// What we write: 64 KiB clusters, qemu's default, keep copy-on-write of later snapshots
// cheap; 16-bit refcounts.
const (
	clusterBits = 16
	clusterSize = 1 << clusterBits

	entriesPerL2   = clusterSize / 8
	countsPerBlock = clusterSize / 2

	// dataAlign keeps the disk's alignment in the file: 1 MiB suits RAID stripes, thin
	// pools and partitions.
	dataAlign = 1 << 20
)

// layout has the positions of all parts of a file for a disk of size bytes. Regions are byte ranges of
// the file, made of whole clusters.
type layout struct {
	size     int64
	clusters int64 // clusters of the disk; the last may be partial

	refTable  disk.Range
	refBlocks disk.Range
	l1        disk.Range
	l2        disk.Range
	data      disk.Range
}

// newLayout lays out a file: the tables, then the data.
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

// layoutAt lays out a file whose data begins at data; 0 is where newLayout puts it. That of a disk which was smaller once
// has no room before it for larger tables: they come after it.
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

// fitRefBlocks calls place with a number of refcount blocks. They count their own clusters too, so it
// is found by trying until it suffices.
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

// placeTables puts the tables one after the other from off on, and returns where they end.
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

// tablesNeeded returns how many L2 tables it takes to map the disk.
func (l *layout) tablesNeeded() int64 { return ceilDiv(l.clusters, entriesPerL2) }

// end returns the length of the file.
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

// tableCount returns how many L2 tables there are.
func (l *layout) tableCount() int64 { return l.l2.Len / clusterSize }

// tableRange returns the bytes of the disk that table i maps, whole clusters.
func (l *layout) tableRange(i int64) disk.Range {
	const span = entriesPerL2 * clusterSize
	return disk.Range{Off: i * span, Len: min(span, l.data.Len-i*span)}
}

// blockRange returns the bytes of the file that refcount block i counts.
func (l *layout) blockRange(i int64) disk.Range {
	const span = countsPerBlock * clusterSize
	return disk.Range{Off: i * span, Len: min(span, l.end()-i*span)}
}

// inFile returns where r of the disk lies in the file.
func (l *layout) inFile(r disk.Range) disk.Range {
	return disk.Range{Off: l.data.Off + r.Off, Len: r.Len}
}
