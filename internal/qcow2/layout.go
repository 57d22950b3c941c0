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

// layout says where everything in a file for a disk of size bytes is. Regions are byte
// ranges of the file, made of whole clusters.
type layout struct {
	size     int64
	clusters int64 // of the disk; the last may be only partly used

	refTable  disk.Range
	refBlocks disk.Range
	l1        disk.Range
	l2        disk.Range
	data      disk.Range
}

// newLayout lays out a file. The refcount blocks count their own clusters too, so their
// number is found by trying until it suffices.
func newLayout(size int64) (layout, error) {
	l := layout{size: size, clusters: ceilDiv(size, clusterSize)}
	tables := ceilDiv(l.clusters, entriesPerL2)
	if size <= 0 || tables > maxL1/8 {
		return layout{}, fault.New(fault.Unsupported, "qcow2 image of %d bytes", size).
			WithHint("use a raw image: a qcow2 image holds up to 2 PiB")
	}
	for blocks := int64(1); ; {
		l.place(blocks, tables)
		need := ceilDiv(l.data.End(), countsPerBlock*clusterSize)
		if need == blocks {
			return l, nil
		}
		blocks = need
	}
}

// place puts the regions one after the other.
func (l *layout) place(blocks, tables int64) {
	end := int64(clusterSize) // the header's
	region := func(bytes int64) disk.Range {
		r := disk.Range{Off: end, Len: ceilDiv(bytes, clusterSize) * clusterSize}
		end = r.End()
		return r
	}
	l.refTable = region(blocks * 8)
	l.refBlocks = region(blocks * clusterSize)
	l.l1 = region(tables * 8)
	l.l2 = region(tables * clusterSize)
	end = ceilDiv(end, dataAlign) * dataAlign
	l.data = region(l.clusters * clusterSize)
}

// header returns the header of a file with this layout.
func (l *layout) header() *header {
	return &header{
		version:       3,
		length:        headerV3,
		clusterBits:   clusterBits,
		size:          l.size,
		l1Entries:     uint32(l.tables()),
		l1Offset:      l.l1.Off,
		refTable:      l.refTable.Off,
		refTableCount: uint32(l.refTable.Len / clusterSize),
	}
}

// tables returns how many L2 tables map the disk.
func (l *layout) tables() int64 { return l.l2.Len / clusterSize }

// mapped returns the bytes of the disk that table i maps, whole clusters.
func (l *layout) mapped(i int64) disk.Range {
	const span = entriesPerL2 * clusterSize
	return disk.Range{Off: i * span, Len: min(span, l.data.Len-i*span)}
}

// counted returns the bytes of the file that refcount block i counts.
func (l *layout) counted(i int64) disk.Range {
	const span = countsPerBlock * clusterSize
	return disk.Range{Off: i * span, Len: min(span, l.data.End()-i*span)}
}

// inFile returns where r of the disk lies in the file.
func (l *layout) inFile(r disk.Range) disk.Range {
	return disk.Range{Off: l.data.Off + r.Off, Len: r.Len}
}
