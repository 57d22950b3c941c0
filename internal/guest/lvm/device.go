package lvm

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/decamp/decamp/internal/guest/budget"
)

// Open returns the volume as a disk of Size bytes. It fails where a PV is missing or the
// volume is of a kind that is not understood.
func (v *Volume) Open() (budget.Reader, error) {
	if v.Kind != "linear" && v.Kind != "striped" {
		return nil, fmt.Errorf("volumes of kind %q are not understood", v.Kind)
	}
	d := &device{v: v}
	for _, s := range v.segs {
		for _, each := range s.stripes {
			pv := v.pvs[each.pv]
			if pv.r == nil || pv.start < 0 {
				return nil, fmt.Errorf("physical volume %s is on none of the disks", each.pv)
			}
			d.budget = pv.r.Budget()
		}
	}
	if d.budget == nil {
		return nil, errors.New("the volume has no extents")
	}
	return d, nil
}

// Writable reports whether LVM itself would let the volume be written, without keeping its previous
// contents.
func (v *Volume) Writable() bool { return !v.origin && !v.readOnly }

// OpenForWriting is Open for a volume whose PVs were given to ReadPV as io.WriterAt, too. It
// refuses an origin of snapshots, whose old content a write would have to keep, and what LVM
// itself would not write to.
func (v *Volume) OpenForWriting() (*Device, error) {
	switch r, err := v.Open(); {
	case err != nil:
		return nil, err
	case v.origin:
		return nil, errors.New("it has snapshots, which a write past LVM would change")
	case v.readOnly:
		return nil, errors.New("LVM's description marks it as read-only")
	default:
		d := &Device{device: *r.(*device)}
		for _, s := range v.segs {
			for _, each := range s.stripes {
				if _, ok := v.pvs[each.pv].r.(io.WriterAt); !ok {
					return nil, fmt.Errorf("physical volume %s is only read here", each.pv)
				}
			}
		}
		return d, nil
	}
}

// A device reads a Volume. Physical volumes charge their reads.
type device struct {
	v      *Volume
	budget *budget.Budget
}

// Budget returns that of the physical volumes.
func (d *device) Budget() *budget.Budget { return d.budget }

// ReadAt fills p, or fails.
func (d *device) ReadAt(p []byte, off int64) (int, error) {
	return d.pieces(p, off, io.ErrUnexpectedEOF, func(r budget.Reader, p []byte, at int64) (int, error) { return r.ReadAt(p, at) })
}

// A Device reads and writes a Volume.
type Device struct{ device }

// Size returns the volume's size in bytes.
func (d *Device) Size() int64 { return d.v.Size }

// WriteAt writes p. After an error a part of it may be written.
func (d *Device) WriteAt(p []byte, off int64) (int, error) {
	return d.pieces(p, off, io.ErrShortWrite, func(r budget.Reader, p []byte, at int64) (int, error) { return r.(io.WriterAt).WriteAt(p, at) })
}

// pieces has each part of p read or written on the PV that holds it.
func (d *device) pieces(p []byte, off int64, outside error, move func(r budget.Reader, p []byte, at int64) (int, error)) (int, error) {
	if off < 0 || off > d.v.Size || int64(len(p)) > d.v.Size-off {
		return 0, outside
	}
	done := 0
	for done < len(p) {
		r, at, length := d.v.locate(off + int64(done))
		n, err := move(r, p[done:done+int(min(length, int64(len(p)-done)))], at)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// origins returns the names of the volumes that snapshots are of.
func (t *text) origins() map[string]bool {
	out := map[string]bool{}
	for _, lv := range t.sections {
		for _, seg := range lv.sections {
			if origin := seg.string("origin"); origin != "" {
				out[origin] = true
			}
		}
	}
	return out
}

// canWrite reports whether a description's flags let the thing be written to.
func (t *text) canWrite() bool { return slices.Contains(t.values["status"], "WRITE") }
