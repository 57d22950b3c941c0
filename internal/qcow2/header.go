package qcow2

import (
	"encoding/binary"
	"math"

	"github.com/decamp/decamp/internal/disk"
)

// Offsets and limits of the header, from qemu's docs/interop/qcow2.txt. All numbers are
// big-endian.
const (
	magic = 0x514649fb // "QFI\xfb"

	headerV2 = 72  // length of the version 2 header in bytes
	headerV3 = 104 // minimum length of the version 3 header in bytes

	minClusterBits  = 9        // clusters of 512 bytes
	maxClusterBits  = 21       // clusters of 2 MiB, qemu's limit
	minExtendedBits = 14       // smallest cluster with extended L2 entries: 32 subclusters of at least one sector
	maxL1           = 32 << 20 // largest L1 table in bytes, qemu's limit
	maxRefTable     = 8 << 20  // largest refcount table in bytes, qemu's limit
	maxBackingName  = 1023     // largest length of a backing file's name in bytes
)

// A header has the fields of the header that readers and writers need.
type header struct {
	version       uint32      // 2 or 3
	length        uint32      // bytes of the header; extensions follow
	clusterBits   uint32      // logarithm of the cluster size to base 2
	size          int64       // bytes of the disk
	l1Entries     uint32      // number of entries of the L1 table
	l1Offset      int64       // offset of the L1 table in the file
	refTable      int64       // offset of the refcount table in the file
	refTableCount uint32      // length of the refcount table in clusters
	snapshots     uint32      // number of internal snapshots
	backing       int64       // offset of the backing file's name; 0 without one
	backingLen    uint32      // length of the backing file's name in bytes
	dirty         bool        // refcounts are not up to date; all other data is
	extendedL2    bool        // L2 entries have 16 bytes, and clusters 32 subclusters
	compression   compression // algorithm of the compressed clusters
}

// clusterBytes returns the size of a cluster in bytes.
func (h *header) clusterBytes() int64 { return 1 << h.clusterBits }

// grainBytes returns the size in bytes of the unit of allocation: a cluster or a subcluster.
func (h *header) grainBytes() int64 {
	if h.extendedL2 {
		return h.clusterBytes() / subclusters
	}
	return h.clusterBytes()
}

// entrySize returns the size of an L2 entry in bytes.
func (h *header) entrySize() int64 {
	if h.extendedL2 {
		return 16
	}
	return 8
}

// l2Entries returns the number of clusters that one L2 table maps.
func (h *header) l2Entries() int64 { return h.clusterBytes() / h.entrySize() }

// l1Needed returns the number of L1 entries that the disk needs. The table may have more.
func (h *header) l1Needed() int64 {
	clusters := ceilDiv(h.size, h.clusterBytes())
	return ceilDiv(clusters, h.l2Entries())
}

// hasBacking reports whether the image has a backing file. An empty name means none, as in qemu.
func (h *header) hasBacking() bool { return h.backing != 0 && h.backingLen > 0 }

// encode returns the header of a version 3 image without optional features. The rest of its cluster
// must be zeros, which end the list of extensions.
func (h *header) encode() []byte {
	b := make([]byte, headerV3)
	be := binary.BigEndian
	be.PutUint32(b[0:], magic)
	be.PutUint32(b[4:], h.version)
	be.PutUint32(b[20:], h.clusterBits)
	be.PutUint64(b[24:], uint64(h.size))
	be.PutUint32(b[36:], h.l1Entries)
	be.PutUint64(b[40:], uint64(h.l1Offset))
	be.PutUint64(b[48:], uint64(h.refTable))
	be.PutUint32(b[56:], h.refTableCount)
	be.PutUint32(b[96:], 4) // refcounts of 1<<4 bits
	be.PutUint32(b[100:], headerV3)
	return b
}

// parseHeader parses the header of the image at p. b is the first rawfile.Align bytes of the file, or
// all of a shorter one. It fails if the header is invalid or this package cannot read the image.
func parseHeader(p filePath, b []byte) (*header, error) {
	be := binary.BigEndian
	if len(b) < headerV2 || be.Uint32(b) != magic {
		return nil, p.corrupt("there is no qcow2 header")
	}
	if err := checkBase(p, b); err != nil {
		return nil, err
	}
	h := &header{
		version:       be.Uint32(b[4:]),
		length:        headerV2,
		backing:       int64(be.Uint64(b[8:])),
		backingLen:    be.Uint32(b[16:]),
		clusterBits:   be.Uint32(b[20:]),
		size:          int64(be.Uint64(b[24:])),
		l1Entries:     be.Uint32(b[36:]),
		l1Offset:      int64(be.Uint64(b[40:])),
		refTable:      int64(be.Uint64(b[48:])),
		refTableCount: be.Uint32(b[56:]),
		snapshots:     be.Uint32(b[60:]),
	}
	if h.version == 3 {
		h.length = be.Uint32(b[100:])
		if err := h.readFeatures(p, b); err != nil {
			return nil, err
		}
	}
	return h, h.checkSizes(p)
}

// checkSizes fails if the cluster size, the disk size or the L1 table is impossible.
func (h *header) checkSizes(p filePath) error {
	switch {
	case h.clusterBits < minClusterBits || h.clusterBits > maxClusterBits:
		return p.corrupt("its cluster size is 1<<%d", h.clusterBits)
	case h.extendedL2 && h.clusterBits < minExtendedBits:
		return p.corrupt("its cluster size is 1<<%d, too small for subclusters", h.clusterBits)
	case int64(h.length) > h.clusterBytes():
		return p.corrupt("its header has %d bytes, more than a cluster", h.length)
	case h.size < 0 || h.size > math.MaxInt64-h.clusterBytes():
		return p.corrupt("its size is %d", uint64(h.size))
	case h.l1Needed() > maxL1/8:
		return p.corrupt("its size, %d, is more than clusters of %d can map", h.size, h.clusterBytes())
	case h.l1Entries > maxL1/8:
		return p.corrupt("its L1 table has %d entries", h.l1Entries)
	case int64(h.l1Entries) < h.l1Needed():
		return p.corrupt("its L1 table has %d entries, its size needs %d", h.l1Entries, h.l1Needed())
	case h.l1Needed() > 0 && !h.isCluster(h.l1Offset):
		return p.corrupt("its L1 table is at %#x", uint64(h.l1Offset))
	}
	return h.checkTables(p)
}

// checkTables fails if the position of the refcount table or of the backing file's name is impossible.
func (h *header) checkTables(p filePath) error {
	table, l1 := h.refTableRange(), h.l1Range()
	switch {
	case h.hasBacking() && (h.backing < int64(h.length) || h.backing > h.clusterBytes()-int64(min(h.backingLen, maxBackingName+1)) || h.backingLen > maxBackingName):
		return p.corrupt("the name of its backing file has %d bytes at %#x", h.backingLen, uint64(h.backing))
	case h.refTableCount == 0:
		return nil // qemu refuses it; nothing is missing to read the disk
	case !h.isCluster(h.refTable) || table.Len > maxRefTable:
		return p.corrupt("its refcount table has %d clusters at %#x", h.refTableCount, uint64(h.refTable))
	case !table.Intersect(l1).Empty():
		return p.corrupt("its refcount table at %v and its L1 table at %v overlap", table, l1)
	}
	return nil
}

// isCluster reports whether off is a possible offset of a cluster other than the first.
func (h *header) isCluster(off int64) bool {
	return off > 0 && off <= math.MaxInt64-maxL1 && off&(h.clusterBytes()-1) == 0
}

// ceilDiv returns n divided by by, rounded up. Neither may be negative.
func ceilDiv(n, by int64) int64 { return (n + by - 1) / by }

// isWhole reports whether r begins with a whole cluster. The last cluster of the disk counts as whole
// if r contains all of its bytes on the disk.
func (h *header) isWhole(r disk.Range) bool {
	return r.Off&(h.clusterBytes()-1) == 0 && r.Len >= min(h.clusterBytes(), h.size-r.Off)
}

// grainOf returns the offset of the grain that contains off.
func (h *header) grainOf(off int64) int64 { return off &^ (h.grainBytes() - 1) }

// l1Range returns the range of the L1 table in the file, in whole clusters.
func (h *header) l1Range() disk.Range {
	return disk.Range{Off: h.l1Offset, Len: ceilDiv(int64(h.l1Entries)*8, h.clusterBytes()) * h.clusterBytes()}
}

// refTableRange returns the range of the refcount table in the file.
func (h *header) refTableRange() disk.Range {
	return disk.Range{Off: h.refTable, Len: int64(h.refTableCount) << h.clusterBits}
}
