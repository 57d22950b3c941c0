package vmdk

import (
	"encoding/binary"
	"math/bits"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

const (
	sparseMagic = "KDMV"

	// gdAtEnd in gdOffset means that the footer has the directory's position.
	gdAtEnd = 1<<64 - 1

	// maxGrainSectors is the largest grain that qemu reads: 1 GiB.
	maxGrainSectors = 0x200000
	maxTableEntries = 512

	// maxSectors is more than any file or disk has. In bytes, and with a table's span
	// added, it is still an int64.
	maxSectors = 1 << 53
)

// Flags of a hosted sparse extent. The upper half must be understood to read the file.
const (
	flagNewlines   = 1 << 0 // the newline test is valid
	flagRedundant  = 1 << 1 // there is a second directory with its own tables
	flagZeroGrain  = 1 << 2 // entry 1 is a grain of zeros
	flagCompressed = 1 << 16
	flagMarkers    = 1 << 17 // grains and tables have their number before them

	flagsUnderstood = flagCompressed | flagMarkers
)

// sparseHeader is the header of a hosted sparse extent, or its footer. Offsets and sizes
// are in sectors, as in the file, and checked to be less than maxSectors.
type sparseHeader struct {
	version        uint32
	flags          uint32
	capacity       int64
	grain          int64 // a power of two
	descriptor     int64 // 0: none
	descriptorSize int64
	tableEntries   int64
	redundant      int64  // redundant directory
	directory      uint64 // may be gdAtEnd
	overhead       int64
	unclean        bool
	compression    uint16
}

func (h *sparseHeader) isCompressed() bool { return h.flags&flagCompressed != 0 }
func (h *sparseHeader) diskBytes() int64   { return h.capacity * disk.SectorSize }
func (h *sparseHeader) grainBytes() int64  { return h.grain * disk.SectorSize }

// tableCount returns how many grain tables the disk needs.
func (h *sparseHeader) tableCount() int64 {
	span := h.grain * h.tableEntries
	return (h.capacity + span - 1) / span
}

// parseSparseHeader parses the first 512 bytes of a hosted sparse extent. Errors are
// fault.Corrupt or fault.Unsupported.
func parseSparseHeader(b []byte) (*sparseHeader, error) {
	if len(b) < disk.SectorSize || string(b[:4]) != sparseMagic {
		return nil, corruptSparse("it has no header")
	}
	h := &sparseHeader{
		version:        binary.LittleEndian.Uint32(b[4:]),
		flags:          binary.LittleEndian.Uint32(b[8:]),
		capacity:       sectorCount(b[12:]),
		grain:          sectorCount(b[20:]),
		descriptor:     sectorCount(b[28:]),
		descriptorSize: sectorCount(b[36:]),
		tableEntries:   int64(binary.LittleEndian.Uint32(b[44:])),
		redundant:      sectorCount(b[48:]),
		directory:      binary.LittleEndian.Uint64(b[56:]),
		overhead:       sectorCount(b[64:]),
		unclean:        b[72] != 0,
		compression:    binary.LittleEndian.Uint16(b[77:]),
	}
	if h.flags&flagNewlines != 0 && string(b[73:77]) != "\n \r\n" {
		return nil, corruptSparse("its line ends were changed: it was transferred as text").
			WithHint("copy the file again in binary mode")
	}
	return h, h.checkHeader()
}

// sectorCount reads a 64-bit number of sectors; -1 if no file or disk can have so many.
func sectorCount(b []byte) int64 {
	n := binary.LittleEndian.Uint64(b)
	if n > maxSectors {
		return -1
	}
	return int64(n)
}

func (h *sparseHeader) checkHeader() error {
	switch {
	case h.version < 1 || h.version > 3:
		return unsupportedSparse("version %d is not known", h.version)
	case h.flags>>16<<16&^flagsUnderstood != 0:
		return unsupportedSparse("flags %#x ask for features that are not known", h.flags)
	case h.isCompressed() != (h.compression == 1) || h.compression > 1:
		return unsupportedSparse("flags %#x and compression %d contradict each other", h.flags, h.compression)
	case h.capacity <= 0:
		return corruptSparse("capacity at offset 12 is no disk's")
	case h.grain < 1 || h.grain > maxGrainSectors || bits.OnesCount64(uint64(h.grain)) != 1:
		return corruptSparse("grain size at offset 20 is %d sectors, not a power of two up to %d", h.grain, maxGrainSectors)
	case h.tableEntries < 1 || h.tableEntries > maxTableEntries:
		return corruptSparse("a table of %d entries at offset 44; 512 is usual and the most", h.tableEntries)
	case h.descriptor < 0 || h.descriptorSize < 0 || h.overhead < 0:
		return corruptSparse("the descriptor, or the first grain, is beyond any file")
	case h.directory == 0 || h.directory != gdAtEnd && h.directory > 1<<32:
		return corruptSparse("a directory cannot be at sector %d", h.directory)
	}
	return nil
}

func corruptSparse(format string, args ...any) *fault.Error {
	return fault.New(fault.Corrupt, "sparse extent: "+format, args...).
		WithHint("%s", damagedHint)
}

func unsupportedSparse(format string, args ...any) *fault.Error {
	return fault.New(fault.Unsupported, "sparse extent: "+format, args...).
		WithHint("%s", cloneHint)
}
