package vmdk

import (
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// A Piece is a range of a disk with the position of its raw bytes.
type Piece struct {
	disk.Range        // range of the disk
	File       string // file relative to the descriptor's folder; empty if the range reads as zeros
	Offset     int64  // offset of the range's first byte in File
}

// Flat returns the pieces of a flat disk, in order and without gaps. A disk that ESXi created has one
// piece. Flat fails with fault.Unsupported and a remedy if the data is not in flat files: deltas,
// sparse files, raw device mappings, vSAN objects, encrypted disks.
func (d *Descriptor) Flat() ([]Piece, error) {
	if err := d.checkFlat(); err != nil {
		return nil, err
	}
	pieces := make([]Piece, 0, len(d.Extents))
	var off int64
	for _, x := range d.Extents {
		if err := x.checkFlat(); err != nil {
			return nil, err
		}
		r := disk.Range{Off: off, Len: x.Sectors * disk.SectorSize}
		pieces = append(pieces, Piece{Range: r, File: x.File, Offset: x.Offset})
		off = r.End()
	}
	return pieces, nil
}

// checkFlat fails if the disk as a whole is not flat: a delta, a native snapshot, or encrypted.
func (d *Descriptor) checkFlat() error {
	if err := d.checkReadable(); err != nil {
		return err
	}
	if d.IsDelta() {
		return unsupportedDescriptor("the disk is a snapshot delta on %q", d.ParentFile).
			WithHint("remove the VM's snapshots (Snapshots > Delete All), then try again")
	}
	return nil
}

// checkFlat fails unless the extent is zeros or raw bytes in a file.
func (x ExtentLine) checkFlat() error {
	if err := x.checkReadable(); err != nil {
		return err
	}
	switch x.Type {
	case ZeroExtent, Flat, VMFS:
		return nil
	}
	return x.unsupportedExtent("its file is not flat").
		WithHint("%s", cloneHint)
}

// unsupportedExtent returns a fault.Unsupported error that names the line and the type of the extent.
func (x ExtentLine) unsupportedExtent(format string, args ...any) *fault.Error {
	return unsupportedDescriptor("line %d: %s extent: "+format, append([]any{x.Line, x.Type}, args...)...)
}
