package vmdk

import (
	"context"
	"encoding/binary"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

const (
	cowdMagic = "COWD" // first four bytes of a COWD file

	// size of the header in bytes. decamp uses its first 32 bytes and the unclean flag.
	cowdHeaderSize  = 2048
	cowdUncleanAt   = 1648 // offset of the flag in the header that is not zero while the file is open for writing
	cowdTableGrains = 4096 // number of entries of a grain table
)

// A cowdHeader is the header of a delta on VMFS5 or NFS ("vmfsSparse"). Sizes are in sectors, as in the
// file.
type cowdHeader struct {
	capacity  int64 // size of the disk in sectors
	grain     int64 // size of a grain in sectors; 1 on ESXi
	directory int64 // position of the grain directory in the file, in sectors
	entries   int64 // number of entries of the grain directory
	unclean   bool  // the file was not closed after the last write
}

// tableCount returns the number of grain tables that map the whole disk.
func (h *cowdHeader) tableCount() int64 {
	span := h.grain * cowdTableGrains
	return (h.capacity + span - 1) / span
}

// parseCOWD parses the header of a COWD file. b is the first cowdHeaderSize bytes of the file, and name
// is its name for errors. Errors are fault.Corrupt or fault.Unsupported.
func parseCOWD(name string, b []byte) (*cowdHeader, error) {
	if len(b) < cowdHeaderSize || string(b[:4]) != cowdMagic {
		return nil, corruptFile(name, "it has no COWD header")
	}
	u32 := func(at int) int64 { return int64(binary.LittleEndian.Uint32(b[at:])) }
	h := &cowdHeader{capacity: u32(12), grain: u32(16), directory: u32(20), entries: u32(24), unclean: u32(cowdUncleanAt) != 0}
	switch version := u32(4); {
	case version == 3:
		return nil, fault.New(fault.Unsupported, "%s: it is a COWD file of Workstation 3 (version 3)", name).
			WithHint("open the VM with a current Workstation, which converts its disks, or: vmware-vdiskmanager -r old.vmdk -t 0 new.vmdk")
	case version != 1:
		return nil, unsupportedFile(name, "COWD version %d is not known", version)
	case h.capacity == 0:
		return nil, corruptFile(name, "the COWD header has no sectors (offset 12)")
	case h.grain == 0 || h.grain > maxGrainSectors:
		return nil, corruptFile(name, "the COWD header has a grain size of %d sectors (offset 16)", h.grain)
	case h.entries < h.tableCount():
		return nil, corruptFile(name, "the COWD directory has %d entries, a disk of %d sectors needs %d", h.entries, h.capacity, h.tableCount())
	}
	return h, nil
}

// A cowd reads the tables of a COWD extent.
type cowd struct {
	*cowdHeader
	file *file // file with the header, the tables and the grains
}

// newCOWD returns the layer of a COWD file that begins with head, and its grain size in bytes. It warns
// if the file was not closed properly. A directory that lies outside the file is fault.Corrupt.
func newCOWD(f *file, head []byte, cache *tableCache, warn warner) (layer, int64, error) {
	h, err := parseCOWD(f.name, head)
	if err != nil {
		return nil, 0, err
	}
	if h.unclean {
		warn("%s was not closed properly, or is in use; the last writes may be missing", f.name)
	}
	c := cowd{h, f}
	if end := c.directoryRegion().at + h.tableCount()*4; end > f.size() {
		return nil, 0, corruptFile(f.name, "its directory ends at %d, the file at %d", end, f.size())
	}
	m := &grainMap{
		file: f, cache: cache, bytes: h.capacity * disk.SectorSize, grain: h.grain * disk.SectorSize,
		entries: cowdTableGrains, tables: h.tableCount(), readPiece: c.directoryPiece, readTable: c.readTable,
	}
	f.mapIfSmall(m.grain)
	return m, m.grain, nil
}

// directoryRegion returns the position of the directory and the width of its entries.
func (c cowd) directoryRegion() region { return region{at: c.directory * disk.SectorSize, width: 4} }

// directoryPiece returns n entries of the directory from entry first: the sectors of grain tables, 0
// for a missing table.
func (c cowd) directoryPiece(ctx context.Context, first, n int64) (table, error) {
	return c.file.readRegion(ctx, c.directoryRegion(), first, n)
}

// readTable reads grain table n, which is at sector entry, and converts its entries to file offsets.
// Entry 1 is a grain of zeros. ESXi does not document this value, but other readers support it, and no
// grain can lie in the header.
func (c cowd) readTable(ctx context.Context, n, entry int64) (table, error) {
	t, err := c.file.readRegion(ctx, region{at: entry * disk.SectorSize, width: 4}, 0, cowdTableGrains)
	if err != nil {
		return nil, err
	}
	for i, e := range t {
		switch at := e * disk.SectorSize; {
		case e == 0:
			t[i] = absentGrain
		case e == 1:
			t[i] = zeroGrain
		case at < cowdHeaderSize || at >= c.file.size():
			return nil, corruptFile(c.file.name, "grain %d of table %d is at sector %d, which is no valid position of a grain", i, n, e)
		default:
			t[i] = at
		}
	}
	return t, nil
}
