package vmdk

import (
	"strings"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// A Piece is a range of a disk and the raw bytes that hold it.
type Piece struct {
	disk.Range        // of the disk
	File       string // relative to the descriptor's folder; empty: reads as zeros
	Offset     int64  // of the range's first byte in File
}

// Flat returns the files a flat disk is made of, in order and without gaps: one for
// everything ESXi makes. It refuses, with fault.Unsupported and a remedy, disks whose
// bytes are not simply there: deltas, sparse files, raw device mappings, vSAN objects,
// encrypted disks.
func (d *Descriptor) Flat() ([]Piece, error) {
	if err := d.refuse(); err != nil {
		return nil, err
	}
	pieces := make([]Piece, 0, len(d.Extents))
	var off int64
	for _, x := range d.Extents {
		if err := x.refuse(); err != nil {
			return nil, err
		}
		r := disk.Range{Off: off, Len: x.Sectors * disk.SectorSize}
		pieces = append(pieces, Piece{Range: r, File: x.File, Offset: x.Offset})
		off = r.End()
	}
	return pieces, nil
}

// refuse looks at what concerns the disk as a whole.
func (d *Descriptor) refuse() error {
	switch {
	case d.NativeSnapshot:
		return unsupported("the disk is a native snapshot that only the storage array can read").
			WithHint("remove the VM's snapshots (Snapshots > Delete All), then try again")
	case d.IsDelta():
		return unsupported("the disk is a snapshot delta on %q", d.ParentFile).
			WithHint("remove the VM's snapshots (Snapshots > Delete All), then try again")
	case d.encrypted():
		return unsupported("the disk is encrypted; its files hold only ciphertext").
			WithHint("decrypt it first: VM Policies > Edit VM Storage Policies > Datastore Default")
	}
	return nil
}

// encrypted reports VM encryption, an I/O filter named in the disk's data base.
func (d *Descriptor) encrypted() bool {
	return strings.Contains(strings.ToLower(d.DDB["iofilters"]), "vmcrypt")
}

// refuse looks at one extent.
func (x ExtentLine) refuse() error {
	switch x.Type {
	case ZeroExtent:
		return nil
	case VMFSRDM, VMFSRaw:
		return x.unsupported("it maps a LUN, whose bytes are in no file").
			WithHint("migrate the LUN by presenting it to the target, or turn it into a file: vmkfstools -i rdm.vmdk -d thin copy.vmdk")
	case Flat, VMFS:
		if x.Object != "" {
			return x.unsupported("its data is the object %s, not a file", x.Object).
				WithHint("move the VM to a VMFS or NFS datastore with Storage vMotion")
		}
		return nil
	case VSANSparse:
		return x.unsupported("it is a delta on vSAN").
			WithHint("remove the VM's snapshots and move it to a VMFS or NFS datastore with Storage vMotion")
	}
	return x.unsupported("its file is not flat").
		WithHint("clone the disk to a flat one: vmkfstools -i old.vmdk -d thin new.vmdk on the host")
}

func (x ExtentLine) unsupported(format string, args ...any) *fault.Error {
	return unsupported("line %d: %s extent: "+format, append([]any{x.Line, x.Type}, args...)...)
}
