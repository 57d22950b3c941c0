package qcow2

import "github.com/decamp/decamp/internal/disk"

// Bits of L1 and L2 entries.
const (
	flagCompressed = 1 << 62            // the cluster is compressed
	flagZero       = 1 << 0             // the cluster reads as zeros (version 3)
	offsetMask     = 0x00fffffffffffe00 // bits of a cluster's offset in the file
	reservedL1     = 0x7f000000000001ff // bits of an L1 entry that must be 0
	reservedL2     = 0x3f000000000001fe // bits of an L2 entry that must be 0

	subclusters = 32 // subclusters of a cluster with an extended L2 entry
)

// An entryKind is the storage of a grain of the disk.
type entryKind uint8

const (
	unallocated entryKind = iota // data is in the backing file; zeros without one
	zero                         // allocated or not, reads as zeros
	standard                     // plain bytes at off
	compressed                   // size bytes at off, a whole cluster
)

// An entry is a decoded L2 entry, or one subcluster of it.
type entry struct {
	kind entryKind // storage of the grain
	off  int64     // offset in the file; 0 unless kind is standard or compressed
	size int64     // upper bound of the bytes of compressed data
}

// parseEntry decodes the L2 entry e of a cluster. An invalid one is fault.Corrupt.
func (m *mapping) parseEntry(e uint64, cluster int64) (entry, error) {
	off := int64(e & offsetMask)
	switch {
	case e&flagCompressed != 0:
		return m.parseCompressed(e, cluster)
	case e&reservedL2 != 0 || off != 0 && !m.isCluster(off) || m.version == 2 && e&flagZero != 0:
		return entry{}, m.path.corrupt("L2 entry of cluster %d is %#x", cluster, e)
	case e&flagZero != 0:
		return entry{kind: zero}, nil
	case off == 0:
		return entry{}, nil
	}
	return m.standardEntry(off, cluster, 0)
}

// parseExtended decodes subcluster sub of an extended L2 entry. In the second half b, the lower 32 bits
// mark the allocated subclusters, and the upper 32 bits those that are zeros.
func (m *mapping) parseExtended(e, b uint64, cluster int64, sub int) (entry, error) {
	off := int64(e & offsetMask)
	allocated, zeroes := uint32(b), uint32(b>>subclusters)
	isAllocated, isZero := allocated>>sub&1 != 0, zeroes>>sub&1 != 0
	isCompressed := e&flagCompressed != 0
	switch {
	case isCompressed && b == 0:
		return m.parseCompressed(e, cluster)
	case isCompressed || e&(reservedL2|flagZero) != 0 || allocated&zeroes != 0 || off == 0 && allocated != 0 || off != 0 && !m.isCluster(off):
		return entry{}, m.path.corrupt("L2 entry of cluster %d is %#x, its subclusters %#x", cluster, e, b)
	case isZero:
		return entry{kind: zero}, nil
	case !isAllocated:
		return entry{}, nil
	}
	return m.standardEntry(off, cluster, int64(sub)*m.grainBytes())
}

// standardEntry returns the entry for offset skip in the plain cluster at off of the file. It fails if
// the cluster lies outside the file or in a table.
func (m *mapping) standardEntry(off, cluster, skip int64) (entry, error) {
	switch {
	case off >= m.file.Size():
		return entry{}, m.path.corrupt("cluster %d is at %#x, after the end of the file of %d bytes: it was cut short", cluster, off, m.file.Size())
	case m.inTable(off):
		return entry{}, m.path.corrupt("cluster %d is at %#x, in a table", cluster, off)
	}
	return entry{kind: standard, off: off + skip}, nil
}

// parseCompressed decodes the entry of a compressed cluster. The low bits are its offset, the others
// the number of additional 512-byte sectors. The cluster size determines the number of bits of each.
func (m *mapping) parseCompressed(e uint64, cluster int64) (entry, error) {
	offBits := 62 - (m.clusterBits - 8)
	off := int64(e & (1<<offBits - 1))
	sectors := int64(e &^ (copied | flagCompressed) >> offBits)
	size := (sectors+1)*disk.SectorSize - off%disk.SectorSize
	if off < m.clusterBytes() || off >= m.file.Size() || m.inTable(off) {
		return entry{}, m.path.corrupt("compressed cluster %d is at %#x of %d bytes, or in a table", cluster, off, m.file.Size())
	}
	return entry{kind: compressed, off: off, size: min(size, m.file.Size()-off)}, nil
}
