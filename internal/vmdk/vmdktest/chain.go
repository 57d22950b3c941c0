package vmdktest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path/filepath"
)

// Format is how a layer's files hold its sectors.
type Format uint8

const (
	Flat     Format = iota // raw bytes
	Sparse                 // hosted sparse, "KDMV"
	Stream                 // streamOptimized
	COWD                   // vmfsSparse delta
	SESparse               // seSparse delta
)

// A Chain is the recipe of a disk: layers from the base up.
type Chain struct {
	Seed   uint64
	Name   string // name of the disk; default "disk"
	Layers []Layer
}

// A Layer is one disk of a chain.
type Layer struct {
	Format  Format
	Sectors int64    // sectors of this layer; default those of the layer below
	Grain   int64    // sectors; default 128 for Sparse and Stream, 1 for COWD, 8 for SESparse
	Extents []Extent // default: one of all sectors

	// Data, Zero and Unmapped are the shares of grains that say so; the rest is absent.
	// Formats without the word for it make them absent. Run is how many grains are
	// decided alike on average; default 1.
	Data, Zero, Unmapped float64
	Run                  int

	// InOrder stores grains and tables in the order of the disk. Default: shuffled.
	InOrder bool

	Text   Text   // the descriptor
	Hosted Hosted // options of Sparse and Stream
	Layout Layout // options of Stream
}

// An Extent is one extent line and its file.
type Extent struct {
	Sectors int64
	Access  string // default RW, for Stream RDONLY
	Type    string // the keyword; default by format
	Offset  int64  // sectors into the file, for flat ones
}

// zero reports whether the extent reads as zeros and has no file.
func (x Extent) zero() bool { return x.Type == "ZERO" || x.Access == "NOACCESS" }

// A Disk is a chain that was written.
type Disk struct {
	Folder string
	Name   string   // name of the top layer's descriptor, which a test opens
	Names  []string // names of all descriptors, base first
	Want   *Overlay
}

// Path is the path of the top layer's descriptor.
func (d *Disk) Path() string { return filepath.Join(d.Folder, d.Name) }

// Write makes the chain's files in folder.
func (c Chain) Write(folder string) (*Disk, error) {
	d := &Disk{Folder: folder, Want: &Overlay{seed: c.Seed}}
	for i := range c.Layers {
		l := c.prepare(i, d)
		d.Want.resize(l.Sectors)
		if err := l.write(folder); err != nil {
			return nil, fmt.Errorf("make layer %d: %w", i, err)
		}
		d.Names = append(d.Names, l.descriptorName())
		d.Name = l.descriptorName()
	}
	return d, nil
}

// layer is a Layer being written.
type layer struct {
	Layer
	seed   uint64
	stem   string // common part of its file names
	parent string // the descriptor below; empty for the base
	cid    uint32
	under  uint32 // the CID of the parent, or all ones
	writer uint8
	rnd    *rand.Rand
	want   *Overlay
}

// prepare fills in the defaults of layer i.
func (c Chain) prepare(i int, below *Disk) *layer {
	l := &layer{Layer: c.Layers[i], seed: c.Seed, writer: uint8(i + 1), want: below.Want, parent: below.Name}
	l.rnd = rand.New(rand.NewPCG(c.Seed, uint64(i)))
	l.stem = cmp.Or(c.Name, "disk")
	if i > 0 {
		l.stem += fmt.Sprintf("-%06d", i)
	}
	l.cid, l.under = c.cid(i), c.cid(i-1)
	l.Sectors = cmp.Or(l.Sectors, below.Want.Size()/sector)
	l.Grain = cmp.Or(l.Grain, map[Format]int64{COWD: 1, SESparse: 8}[l.Format], 128)
	if len(l.Extents) == 0 {
		l.Extents = []Extent{{Sectors: l.Sectors}}
	}
	return l
}

// cid is the content id of layer i. Real ones are often fffffffe; below a base is
// ffffffff.
func (c Chain) cid(i int) uint32 {
	switch {
	case i < 0:
		return 0xffffffff
	case i == 0 && c.Seed%2 == 0:
		return 0xfffffffe
	}
	return uint32(scramble(c.Seed+uint64(i))) &^ 1
}

// write makes the files of one layer, extent after extent, and the descriptor.
func (l *layer) write(folder string) error {
	var off int64
	for i, x := range l.Extents {
		p := l.plan(off, x)
		off += x.Sectors
		if x.zero() {
			continue
		}
		if err := l.writeExtent(filepath.Join(folder, l.fileName(i)), p); err != nil {
			return err
		}
	}
	if l.embedded() {
		return nil
	}
	return writeText(filepath.Join(folder, l.descriptorName()), l.text())
}

func (l *layer) writeExtent(path string, p *plan) error {
	f, err := create(path)
	if err != nil {
		return err
	}
	switch l.Format {
	case Flat:
		l.flat(f, p)
	case Sparse:
		l.hosted(f, p)
	case Stream:
		l.stream(f, p)
	case COWD:
		l.cowd(f, p)
	case SESparse:
		l.sesparse(f, p)
	}
	return f.finish()
}

// embedded reports whether the descriptor is inside the one data file.
func (l *layer) embedded() bool {
	return l.Format == Stream || l.Format == Sparse && len(l.Extents) == 1 && !l.Hosted.Separate
}

func (l *layer) descriptorName() string { return l.stem + ".vmdk" }

// fileName names the file of extent i as the product that makes such disks does.
func (l *layer) fileName(i int) string {
	switch {
	case l.embedded():
		return l.descriptorName()
	case l.Format == COWD:
		return l.numbered("-delta", i)
	case l.Format == SESparse:
		return l.numbered("-sesparse", i)
	case l.Format == Sparse:
		return fmt.Sprintf("%s-s%03d.vmdk", l.stem, i+1)
	case len(l.Extents) > 1:
		return fmt.Sprintf("%s-f%03d.vmdk", l.stem, i+1)
	}
	return l.stem + "-flat.vmdk"
}

func (l *layer) numbered(suffix string, i int) string {
	if i > 0 {
		suffix = fmt.Sprintf("-%03d%s", i+1, suffix)
	}
	return l.stem + suffix + ".vmdk"
}
