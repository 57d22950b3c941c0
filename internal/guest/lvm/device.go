package lvm

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/decamp/decamp/internal/guest/budget"
)

// Open returns the volume as a disk of Size bytes. It fails if a physical volume is missing or if the
// kind of the volume is not supported.
func (v *Volume) Open() (budget.Reader, error) {
	if v.Kind != "linear" && v.Kind != "striped" {
		return nil, fmt.Errorf("volumes of kind %q are not supported", v.Kind)
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

// Writable reports whether writes to the volume are permitted: it is not read-only and has no
// snapshots, which would require its previous content.
func (v *Volume) Writable() bool { return !v.origin && !v.readOnly }

// OpenForWriting opens a volume whose physical volumes also implement io.WriterAt. It fails if Writable
// is false, because writes here bypass LVM.
func (v *Volume) OpenForWriting() (*Device, error) {
	switch r, err := v.Open(); {
	case err != nil:
		return nil, err
	case v.origin:
		return nil, errors.New("it has snapshots, which a write without LVM would change")
	case v.readOnly:
		return nil, errors.New("LVM's metadata marks it as read-only")
	default:
		d := &Device{device: *r.(*device)}
		for _, s := range v.segs {
			for _, each := range s.stripes {
				if _, ok := v.pvs[each.pv].r.(io.WriterAt); !ok {
					return nil, fmt.Errorf("physical volume %s is open only for reading", each.pv)
				}
			}
		}
		return d, nil
	}
}

// A device reads a Volume. The physical volumes charge the reads to their budget.
type device struct {
	v      *Volume        // volume that is read
	budget *budget.Budget // budget of the physical volumes
}

// Budget returns the budget of the physical volumes.
func (d *device) Budget() *budget.Budget { return d.budget }

// ReadAt fills p or fails. The range must be within the volume.
func (d *device) ReadAt(p []byte, off int64) (int, error) {
	return d.transfer(p, off, io.ErrUnexpectedEOF, func(r budget.Reader, p []byte, at int64) (int, error) { return r.ReadAt(p, at) })
}

// A Device reads and writes a Volume.
type Device struct{ device }

// Size returns the volume's size in bytes.
func (d *Device) Size() int64 { return d.v.Size }

// WriteAt writes p. If it fails, a part of p may be written.
func (d *Device) WriteAt(p []byte, off int64) (int, error) {
	return d.transfer(p, off, io.ErrShortWrite, func(r budget.Reader, p []byte, at int64) (int, error) { return r.(io.WriterAt).WriteAt(p, at) })
}

// transfer calls move for each part of p with the physical volume that contains it and the offset
// there. It returns outside if the range exceeds the volume.
func (d *device) transfer(p []byte, off int64, outside error, move func(r budget.Reader, p []byte, at int64) (int, error)) (int, error) {
	if off < 0 || off > d.v.Size || int64(len(p)) > d.v.Size-off {
		return 0, outside
	}
	done := 0
	for done < len(p) {
		r, at, length := d.v.locateByte(off + int64(done))
		n, err := move(r, p[done:done+int(min(length, int64(len(p)-done)))], at)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// originNames returns the names of the logical volumes that have snapshots. t is the section
// logical_volumes.
func (t *text) originNames() map[string]bool {
	out := map[string]bool{}
	for _, lv := range t.sections {
		for _, seg := range lv.sections {
			if origin := seg.textValue("origin"); origin != "" {
				out[origin] = true
			}
		}
	}
	return out
}

// isWritable reports whether the status of a group or volume contains WRITE.
func (t *text) isWritable() bool { return slices.Contains(t.values["status"], "WRITE") }
