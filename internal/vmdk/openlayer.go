package vmdk

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// openBare adds a layer that has no descriptor, with warnings: its parent and other extents are
// unknown.
func (o *opener) openBare(ctx context.Context, f *file, kind Format) error {
	l, p, err := o.openExtent(ctx, f)
	if err != nil {
		return err
	}
	o.disk.warn("%s has no descriptor: if it is a piece of a disk, or a delta, the rest is missing and reads as zeros", f.name)
	if n := len(o.disk.layers); n > 0 {
		o.disk.warn("%s has no CID: decamp cannot check that it is the parent of %s", f.name, o.disk.layers[n-1].Name)
	}
	o.addLayer(Layer{Name: f.name, ParentCID: NoParent}, []layer{l}, []Part{p})
	return nil
}

// openDescribed adds the layer with the descriptor text, and returns the name of its parent. self is
// the file that contains the text, nil if the text has its own file.
func (o *opener) openDescribed(ctx context.Context, name string, text []byte, self *file) (parent string, err error) {
	d, err := ParseDescriptor(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if err := d.checkReadable(); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if err := o.checkCID(name, d); err != nil {
		return "", err
	}
	if err := o.openExtents(ctx, name, d, self); err != nil {
		return "", err
	}
	return d.parentFile(name)
}

// checkCID fails with fault.Conflict if d, the parent of the last added layer, was written after that
// layer was created. With IgnoreCID it only warns.
func (o *opener) checkCID(name string, d *Descriptor) error {
	n := len(o.disk.layers)
	if n == 0 || o.disk.layers[n-1].ParentCID == d.CID {
		return nil
	}
	child := o.disk.layers[n-1]
	if o.IgnoreCID {
		o.disk.warn("%s was written after %s was created (CID %08x, not %08x): data may be damaged", name, child.Name, d.CID, child.ParentCID)
		return nil
	}
	return fault.New(fault.Conflict, "%s has CID %08x, but the parent of its child %s had CID %08x: it was written since, or is another disk",
		name, d.CID, child.Name, child.ParentCID).
		WithHint("use the chain as the VM has it; if you know that the parent is unchanged, add --ignore-cid")
}

// openExtents opens the extents of descriptor d in order, and adds them as one layer.
func (o *opener) openExtents(ctx context.Context, name string, d *Descriptor, self *file) error {
	layers := make([]layer, 0, len(d.Extents))
	list := make([]Part, 0, len(d.Extents))
	var off int64
	for _, x := range d.Extents {
		l, p, err := o.openLine(ctx, name, d, x, self)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p.Range = disk.Range{Off: off, Len: x.Sectors * disk.SectorSize}
		if p.File >= 0 {
			o.disk.files[p.File].start = off
		}
		layers, list = append(layers, newFitted(l, p.Len)), append(list, p)
		off = p.End()
	}
	o.warnOfUnused(name, list)
	o.addLayer(Layer{Name: name, Descriptor: d, CreateType: d.CreateType, CID: d.CID, ParentCID: d.ParentCID}, layers, list)
	return nil
}

// warnOfUnused warns if a flat file is longer than the part that the descriptor uses. The disk may have
// been extended, or the descriptor may belong to another disk.
func (o *opener) warnOfUnused(descriptor string, list []Part) {
	used := map[int]int64{} // end of the used part by file
	for _, p := range list {
		if p.Format == FormatFlat {
			used[p.File] = max(used[p.File], p.at+p.Len)
		}
	}
	for _, p := range list {
		if end, flat := used[p.File]; flat && end < o.disk.files[p.File].size() {
			f := o.disk.files[p.File]
			o.disk.warn("%s has %d bytes, %s uses the first %d of them", f.name, f.size(), descriptor, end)
		}
	}
}

// addLayer adds a layer of the given extents below all others. list describes the extents; l is
// completed from it.
func (o *opener) addLayer(l Layer, layers []layer, list []Part) {
	all := newParts(layers)
	l.Size, l.Parts = all.size(), list
	for _, p := range list {
		if l.Format == "" || l.Format == FormatZero {
			l.Format, l.Grain = p.Format, p.Grain
		}
	}
	o.disk.chain = append(o.disk.chain, all)
	o.disk.layers = append(o.disk.layers, l)
}

// openLine opens the extent of one extent line. name is the path of descriptor d.
func (o *opener) openLine(ctx context.Context, name string, d *Descriptor, x ExtentLine, self *file) (layer, Part, error) {
	size := x.Sectors * disk.SectorSize
	if err := x.checkReadable(); err != nil {
		return nil, Part{}, err
	}
	if x.File == "" {
		return newZeros(size), Part{Format: FormatZero, File: -1}, nil
	}
	f := self
	// A file with an embedded descriptor was often renamed. The only extent of the
	// descriptor is the file itself.
	if self == nil || len(d.Extents) > 1 {
		var err error
		if f, err = o.openData(ctx, x.File, name); err != nil {
			return nil, Part{}, err
		}
	}
	if x.Type == Flat || x.Type == VMFS {
		return newFlat(f, x.Offset, size)
	}
	l, p, err := o.openExtent(ctx, f)
	if err == nil && l.size() != size {
		o.disk.warn("%s has %d bytes, its descriptor has %d", f.name, l.size(), size)
	}
	return l, p, err
}

// newFlat returns the layer of size bytes of a flat file from off. It fails if the file is shorter.
func newFlat(f *file, off, size int64) (layer, Part, error) {
	if off > f.size() || size > f.size()-off {
		return nil, Part{}, corruptFile(f.name, "it has %d bytes, but the descriptor uses %d from %d", f.size(), size, off)
	}
	f.holes = true
	return plain{Run{Range: disk.Range{Len: size}, Kind: Data, File: f.index, At: off}}, Part{Format: FormatFlat, File: f.index, at: off}, nil
}

// openExtent returns the layer of a sparse file. The signature of the file determines its format, not
// the descriptor.
func (o *opener) openExtent(ctx context.Context, f *file) (layer, Part, error) {
	kind, head, err := identifyFile(ctx, f.name, f.src)
	if err != nil {
		return nil, Part{}, err
	}
	p := Part{Format: kind, File: f.index}
	var l layer
	switch kind {
	case FormatSparse:
		l, p.Format, p.Grain, err = o.openSparse(ctx, f, head)
	case FormatCOWD:
		l, p.Grain, err = newCOWD(f, head, &o.disk.cache, o.disk.warn)
	case FormatSESparse:
		l, p.Grain, err = newSESparse(ctx, f, head, &o.disk.cache)
	default:
		err = corruptFile(f.name, "it is no sparse file: it begins with none of their signatures")
	}
	if err != nil {
		return nil, Part{}, err
	}
	p.Len = l.size()
	return l, p, nil
}

// openSparse returns the layer of a hosted sparse file that begins with head, its format, and its grain
// size in bytes.
func (o *opener) openSparse(ctx context.Context, f *file, head []byte) (layer, Format, int64, error) {
	h, err := parseSparseHeader(head)
	if err != nil {
		return nil, "", 0, fmt.Errorf("%s: %w", f.name, err)
	}
	if h.unclean {
		o.disk.warn("%s was not closed properly; the last writes may be missing", f.name)
	}
	if h.isCompressed() {
		l, err := newPacked(ctx, f, h, &o.disk.cache, o.disk.warn)
		return l, FormatStream, h.grainBytes(), err
	}
	l, err := newSparse(f, h, &o.disk.cache, o.disk.warn)
	return l, FormatSparse, h.grainBytes(), err
}
