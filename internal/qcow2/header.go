package qcow2

import (
	"encoding/binary"
	"math"

	"github.com/decamp/decamp/internal/fault"
)

// Offsets and limits of the header, from qemu's docs/interop/qcow2.txt. All numbers are
// big-endian.
const (
	magic = 0x514649fb // "QFI\xfb"

	headerV2 = 72
	headerV3 = 104

	minClusterBits = 9
	maxClusterBits = 21
	maxL1          = 32 << 20 // bytes, qemu's limit
)

// Incompatible features, by bit.
const (
	featureDirty       = 1 << 0 // refcounts are out of date
	featureCorrupt     = 1 << 1
	featureDataFile    = 1 << 2
	featureCompression = 1 << 3 // another algorithm than zlib
	featureExtendedL2  = 1 << 4
)

// header is what a reader needs to know, and a writer to say.
type header struct {
	version       uint32
	clusterBits   uint32
	size          int64 // of the disk
	l1Entries     uint32
	l1Offset      int64
	refTable      int64
	refTableCount uint32 // clusters
}

func (h *header) cluster() int64 { return 1 << h.clusterBits }

// l2Entries returns how many clusters one L2 table maps.
func (h *header) l2Entries() int64 { return h.cluster() / 8 }

// l1Needed returns how many L1 entries the disk's size takes.
func (h *header) l1Needed() int64 {
	clusters := ceilDiv(h.size, h.cluster())
	return ceilDiv(clusters, h.l2Entries())
}

// encode returns the header of a version 3 image without optional features. What
// follows it in its cluster is zeros: the end of the list of extensions.
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

// parseHeader reads a header from the first bytes of an image and refuses what this
// package cannot read.
func parseHeader(b []byte) (*header, error) {
	be := binary.BigEndian
	if len(b) < headerV2 || be.Uint32(b) != magic {
		return nil, corrupt("there is no qcow2 header")
	}
	h := &header{
		version:       be.Uint32(b[4:]),
		clusterBits:   be.Uint32(b[20:]),
		size:          int64(be.Uint64(b[24:])),
		l1Entries:     be.Uint32(b[36:]),
		l1Offset:      int64(be.Uint64(b[40:])),
		refTable:      int64(be.Uint64(b[48:])),
		refTableCount: be.Uint32(b[56:]),
	}
	if err := checkFeatures(b, h.version); err != nil {
		return nil, err
	}
	return h, h.check()
}

// checkFeatures looks at what decides whether the rest can be understood.
func checkFeatures(b []byte, version uint32) error {
	be := binary.BigEndian
	switch {
	case version < 2 || version > 3:
		return unsupported("version %d is not known", version)
	case be.Uint64(b[8:]) != 0:
		return unsupported("it has a backing file")
	case be.Uint32(b[32:]) != 0:
		return unsupported("it is encrypted")
	case version == 2:
		return nil
	case len(b) < headerV3 || be.Uint32(b[100:]) < headerV3:
		return corrupt("its header is shorter than %d bytes", headerV3)
	}
	return checkIncompatible(be.Uint64(b[72:]))
}

func checkIncompatible(features uint64) error {
	switch {
	case features&featureCorrupt != 0:
		return corrupt("qemu marked it as corrupt")
	case features&featureDirty != 0:
		return fault.New(fault.Conflict, "it is in use, or was not closed cleanly").
			WithHint("shut down the VM that uses it, then: qemu-img check -r all IMAGE")
	case features&featureDataFile != 0:
		return unsupported("its data is in another file")
	case features&featureCompression != 0:
		return unsupported("it is compressed with something other than zlib")
	case features&featureExtendedL2 != 0:
		return unsupported("it has subclusters (extended L2)")
	case features != 0:
		return unsupported("it has features that are not known (bits %#x)", features)
	}
	return nil
}

// check refuses numbers that cannot be.
func (h *header) check() error {
	switch {
	case h.clusterBits < minClusterBits || h.clusterBits > maxClusterBits:
		return corrupt("its cluster size is 1<<%d", h.clusterBits)
	case h.size < 0 || h.size > math.MaxInt64-h.cluster():
		return corrupt("its size is %d", uint64(h.size))
	case h.l1Needed() > maxL1/8:
		return corrupt("its size, %d, is more than clusters of %d can map", h.size, h.cluster())
	case int64(h.l1Entries) < h.l1Needed():
		return corrupt("its L1 table has %d entries, its size needs %d", h.l1Entries, h.l1Needed())
	case h.l1Needed() > 0 && !h.isCluster(h.l1Offset):
		return corrupt("its L1 table is at %#x", uint64(h.l1Offset))
	}
	return nil
}

// isCluster reports whether off may be the offset of a cluster other than the header's.
func (h *header) isCluster(off int64) bool {
	return off > 0 && off <= math.MaxInt64-maxL1 && off&(h.cluster()-1) == 0
}

func ceilDiv(n, by int64) int64 { return (n + by - 1) / by }

func corrupt(format string, args ...any) *fault.Error {
	return fault.New(fault.Corrupt, format, args...).
		WithHint("the image is damaged or not qcow2: qemu-img check IMAGE tells more; copy the disk again")
}

func unsupported(format string, args ...any) *fault.Error {
	return fault.New(fault.Unsupported, format, args...).
		WithHint("make a plain copy of it: qemu-img convert -O qcow2 IMAGE COPY")
}
