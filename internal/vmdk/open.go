package vmdk

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

const (
	// maxDepth is the longest chain that is followed. ESXi makes 32 snapshots at most.
	maxDepth = 64

	// maxFiles is how many files a disk may consist of: 8 TiB of 2 GiB pieces.
	maxFiles = 4096
)

// Options say how a disk is opened. The zero value is right unless Open's error says so.
type Options struct {
	// IgnoreCID reads a delta although its parent was written to after the snapshot was
	// made. The disk is then most likely damaged; a warning says so.
	IgnoreCID bool
}

// Open opens the disk that name describes, with all its parents. name is a descriptor,
// or a sparse file with one in it; or a delta or sparse file without any, which is read
// as far as it goes, with a warning.
func Open(ctx context.Context, files Files, name string, o Options) (*Disk, error) {
	d := &Disk{}
	op := &opener{Options: o, from: files, disk: d, byName: map[string]*file{}}
	if err := op.chain(ctx, name); err != nil {
		return nil, errors.Join(fmt.Errorf("open disk %s: %w", name, err), d.Close())
	}
	d.readers.New = func() any { return &reader{disk: d, cursor: d.chain.cursor()} }
	return d, nil
}

// opener opens the files of one disk.
type opener struct {
	Options
	from   Files
	disk   *Disk
	byName map[string]*file
}

// chain opens the layers from the youngest down to the base.
func (o *opener) chain(ctx context.Context, name string) error {
	seen := map[string]bool{}
	for child := ""; name != ""; {
		switch {
		case seen[name]:
			return corruptFile(name, "the chain of parents comes back to it").
				WithHint("the parent's file has the name of one of its children: put it into another folder, and name that too")
		case len(seen) == maxDepth:
			return unsupportedFile(name, "the chain of parents is longer than %d", maxDepth)
		}
		seen[name] = true
		parent, err := o.layer(ctx, name, child)
		if err != nil {
			return err
		}
		child, name = name, parent
	}
	return nil
}

// layer opens one layer, which child names, and returns its parent's name.
func (o *opener) layer(ctx context.Context, name, child string) (parent string, err error) {
	src, name, err := o.open(ctx, name, child)
	if err != nil {
		return "", err
	}
	kind, head, err := identify(ctx, name, src)
	if err != nil {
		return "", errors.Join(err, src.Close())
	}
	if kind == "" {
		text, err := readText(ctx, name, src)
		if err = errors.Join(err, src.Close()); err != nil {
			return "", err
		}
		return o.described(ctx, name, text, nil)
	}
	f, err := o.keep(name, src)
	if err != nil {
		return "", err
	}
	if kind == FormatSparse {
		text, err := embeddedText(ctx, f, head)
		if err != nil {
			return "", err
		}
		if len(text) > 0 {
			return o.described(ctx, name, text, f)
		}
	}
	return "", o.bare(ctx, f, kind)
}

// open opens a file that the file namer names, and says under which name it was found. One
// that is elsewhere in the datastore is looked for beside namer too: there it is after
// both were copied to one folder.
func (o *opener) open(ctx context.Context, name, namer string) (disk.Source, string, error) {
	src, err := o.from.Open(ctx, name)
	if fault.Is(err, fault.NotFound) && path.IsAbs(name) {
		if near := beside(namer, path.Base(name)); near != namer {
			if src, err := o.from.Open(ctx, near); err == nil {
				return src, near, nil
			}
		}
	}
	if err != nil {
		return nil, "", fmt.Errorf("open %s: %w", name, err)
	}
	return src, name, nil
}

// beside returns name as seen from where namer is.
func beside(namer, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(path.Dir(namer), name)
}

// keep makes a file of the disk of src.
func (o *opener) keep(name string, src disk.Source) (*file, error) {
	if len(o.disk.files) == maxFiles {
		return nil, errors.Join(unsupportedFile(name, "the disk has more than %d files", maxFiles), src.Close())
	}
	f := &file{name: name, index: len(o.disk.files), src: src}
	o.disk.files = append(o.disk.files, f)
	o.byName[name] = f
	return f, nil
}

// data opens a file that a descriptor names, or returns it if it is open.
func (o *opener) data(ctx context.Context, name, descriptor string) (*file, error) {
	name = beside(descriptor, name)
	if f := o.byName[name]; f != nil {
		return f, nil
	}
	src, name, err := o.open(ctx, name, descriptor)
	if err != nil {
		return nil, err
	}
	return o.keep(name, src)
}

// bare opens a layer that has no descriptor.
func (o *opener) bare(ctx context.Context, f *file, kind Format) error {
	l, p, err := o.extent(ctx, f)
	if err != nil {
		return err
	}
	o.disk.warn("%s has no descriptor: if it is a piece of a disk, or a delta, the rest is missing and reads as zeros", f.name)
	o.add(Layer{Name: f.name, ParentCID: NoParent}, []layer{l}, []Part{p})
	return nil
}

// described opens the layer that a descriptor describes. self is the file the text is in,
// nil if it is a file of its own.
func (o *opener) described(ctx context.Context, name string, text []byte, self *file) (parent string, err error) {
	d, err := ParseDescriptor(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if err := d.unreadable(); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if err := o.checkCID(name, d); err != nil {
		return "", err
	}
	if err := o.extents(ctx, name, d, self); err != nil {
		return "", err
	}
	return d.parent(name)
}

// checkCID compares the layer that was opened before this one, its child, with it.
func (o *opener) checkCID(name string, d *Descriptor) error {
	n := len(o.disk.layers)
	if n == 0 || o.disk.layers[n-1].ParentCID == d.CID {
		return nil
	}
	child := o.disk.layers[n-1]
	if o.IgnoreCID {
		o.disk.warn("%s was written to after %s was made (CID %08x, not %08x): data may be damaged", name, child.Name, d.CID, child.ParentCID)
		return nil
	}
	return fault.New(fault.Conflict, "%s has CID %08x, but its child %s was made on CID %08x: it was written to since, or is another disk",
		name, d.CID, child.Name, child.ParentCID).
		WithHint("use the chain as the VM has it; if the parent is known to be unchanged, say so with --ignore-cid")
}

// extents opens what the descriptor's extent lines name.
func (o *opener) extents(ctx context.Context, name string, d *Descriptor, self *file) error {
	layers := make([]layer, 0, len(d.Extents))
	list := make([]Part, 0, len(d.Extents))
	var off int64
	for _, x := range d.Extents {
		l, p, err := o.line(ctx, name, d, x, self)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p.Range = disk.Range{Off: off, Len: x.Sectors * disk.SectorSize}
		if p.File >= 0 {
			o.disk.files[p.File].start = off
		}
		layers, list = append(layers, fit(l, p.Len)), append(list, p)
		off = p.End()
	}
	o.add(Layer{Name: name, Descriptor: d, CreateType: d.CreateType, CID: d.CID, ParentCID: d.ParentCID}, layers, list)
	return nil
}

// add puts a layer below those that are there.
func (o *opener) add(l Layer, layers []layer, list []Part) {
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

// line opens one extent.
func (o *opener) line(ctx context.Context, name string, d *Descriptor, x ExtentLine, self *file) (layer, Part, error) {
	size := x.Sectors * disk.SectorSize
	if err := x.unreadable(); err != nil {
		return nil, Part{}, err
	}
	if x.File == "" {
		return newZeros(size), Part{Format: FormatZero, File: -1}, nil
	}
	f := self
	// A file that has its descriptor inside was often renamed since: the descriptor's
	// only extent is the file itself.
	if self == nil || len(d.Extents) > 1 {
		var err error
		if f, err = o.data(ctx, x.File, name); err != nil {
			return nil, Part{}, err
		}
	}
	if x.Type == Flat || x.Type == VMFS {
		return newFlat(f, x.Offset, size)
	}
	l, p, err := o.extent(ctx, f)
	if err == nil && l.size() != size {
		o.disk.warn("%s has %d bytes, its descriptor says %d", f.name, l.size(), size)
	}
	return l, p, err
}

// newFlat makes the layer of size bytes of a flat file from off.
func newFlat(f *file, off, size int64) (layer, Part, error) {
	if off > f.size() || size > f.size()-off {
		return nil, Part{}, corruptFile(f.name, "it has %d bytes, the descriptor wants %d from %d", f.size(), size, off)
	}
	f.holes = true
	return plain{Run{Range: disk.Range{Len: size}, Kind: Data, File: f.index, At: off}}, Part{Format: FormatFlat, File: f.index}, nil
}

// extent makes the layer of a sparse file by its signature.
func (o *opener) extent(ctx context.Context, f *file) (layer, Part, error) {
	kind, head, err := identify(ctx, f.name, f.src)
	if err != nil {
		return nil, Part{}, err
	}
	p := Part{Format: kind, File: f.index}
	var l layer
	switch kind {
	case FormatSparse:
		l, p.Format, p.Grain, err = o.sparse(ctx, f, head)
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

// sparse makes the layer of a hosted sparse file.
func (o *opener) sparse(ctx context.Context, f *file, head []byte) (layer, Format, int64, error) {
	h, err := parseSparseHeader(head)
	if err != nil {
		return nil, "", 0, fmt.Errorf("%s: %w", f.name, err)
	}
	if h.unclean {
		o.disk.warn("%s was not closed properly; what was written last may be missing", f.name)
	}
	if h.compressed() {
		l, err := newPacked(ctx, f, h, &o.disk.cache, o.disk.warn)
		return l, FormatStream, h.grainBytes(), err
	}
	l, err := newSparse(f, h, &o.disk.cache, o.disk.warn)
	return l, FormatSparse, h.grainBytes(), err
}
