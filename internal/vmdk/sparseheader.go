package vmdk

import (
	"encoding/binary"
	"math/bits"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

const (
	sparseMagic = "KDMV" // first four bytes of a hosted sparse file

	// value of the directory's position in the header if only the footer contains it
	gdAtEnd = 1<<64 - 1

	// largest grain that QEMU reads, in sectors: 1 GiB
	maxGrainSectors = 0x200000
	maxTableEntries = 512 // largest number of entries of a grain table; all known files have 512

	// limit of all positions and sizes in sectors, more than any file has. In bytes, and with the span of
	// a table added, it fits into an int64.
	maxSectors = 1 << 53
)

// Flags of a hosted sparse extent. A reader must support all flags of the upper half.
const (
	flagNewlines   = 1 << 0  // the header contains newlines that detect a transfer as text
	flagRedundant  = 1 << 1  // there is a second directory with its own tables
	flagZeroGrain  = 1 << 2  // entry 1 is a grain of zeros
	flagCompressed = 1 << 16 // grains are compressed with deflate
	flagMarkers    = 1 << 17 // grains and tables begin with their sector or their type

	flagsUnderstood = flagCompressed | flagMarkers // flags of the upper half that this package supports
)

// A sparseHeader is the header or the footer of a hosted sparse extent. Offsets and sizes are in
// sectors, as in the file, and at most maxSectors after checkHeader.
type sparseHeader struct {
	version        uint32 // version of the format: 1 to 3
	flags          uint32 // set of the flag constants
	capacity       int64  // size of the disk
	grain          int64  // size of a grain; a power of two
	descriptor     int64  // position of the embedded descriptor; 0 if missing
	descriptorSize int64  // length of the embedded descriptor; 0 if missing
	tableEntries   int64  // number of entries of a grain table
	redundant      int64  // position of the redundant directory; 0 if missing
	directory      uint64 // position of the directory; may be gdAtEnd
	overhead       int64  // position of the first grain
	unclean        bool   // the file was not closed after the last write
	compression    uint16 // 0 for none, 1 for deflate
}

// isCompressed reports whether the grains are compressed.
func (h *sparseHeader) isCompressed() bool { return h.flags&flagCompressed != 0 }

// diskBytes returns the size of the disk in bytes.
func (h *sparseHeader) diskBytes() int64 { return h.capacity * disk.SectorSize }

// grainBytes returns the size of a grain in bytes.
func (h *sparseHeader) grainBytes() int64 { return h.grain * disk.SectorSize }

// tableCount returns the number of grain tables that map the whole disk.
func (h *sparseHeader) tableCount() int64 {
	span := h.grain * h.tableEntries
	return (h.capacity + span - 1) / span
}

// parseSparseHeader parses the first 512 bytes of a hosted sparse extent, or its footer. Errors are
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

// sectorCount reads a 64-bit number of sectors. It returns -1 if the number is more than maxSectors.
func sectorCount(b []byte) int64 {
	n := binary.LittleEndian.Uint64(b)
	if n > maxSectors {
		return -1
	}
	return int64(n)
}

// checkHeader fails if a field is invalid or its value is not supported.
func (h *sparseHeader) checkHeader() error {
	switch {
	case h.version < 1 || h.version > 3:
		return unsupportedSparse("version %d is not known", h.version)
	case h.flags>>16<<16&^flagsUnderstood != 0:
		return unsupportedSparse("flags %#x require unknown features", h.flags)
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

// corruptSparse returns a fault.Corrupt error about a hosted sparse extent. The caller adds the name of
// the file.
func corruptSparse(format string, args ...any) *fault.Error {
	return fault.New(fault.Corrupt, "sparse extent: "+format, args...).
		WithHint("%s", damagedHint)
}

// unsupportedSparse returns a fault.Unsupported error about a hosted sparse extent, with the advice to
// clone the disk.
func unsupportedSparse(format string, args ...any) *fault.Error {
	return fault.New(fault.Unsupported, "sparse extent: "+format, args...).
		WithHint("%s", cloneHint)
}
