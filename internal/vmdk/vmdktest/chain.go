package vmdktest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path/filepath"
)

// A Format is the file format of a layer.
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
	Seed   uint64  // determines all contents and random choices
	Name   string  // name of the disk; default "disk"
	Layers []Layer // layers from the base up; at least one
}

// A Layer is one disk of a chain.
type Layer struct {
	Format  Format   // format of the files of all extents
	Sectors int64    // sectors of this layer; default those of the layer below
	Grain   int64    // sectors; default 128 for Sparse and Stream, 1 for COWD, 8 for SESparse
	Extents []Extent // default: one of all sectors

	// shares of grains in each state, from 0 to 1; the rest is absent. A format that cannot represent a
	// state makes such grains absent.
	Data, Zero, Unmapped float64
	Run                  int // average number of neighbouring grains with the same state; default 1

	// InOrder stores grains and tables in the order of the disk. By default they are shuffled.
	InOrder bool

	Text   Text   // the descriptor
	Hosted Hosted // options of Sparse and Stream
	Layout Layout // options of Stream
}

// An Extent is one extent line and its file.
type Extent struct {
	Sectors int64  // length in sectors
	Access  string // default RW, for Stream RDONLY
	Type    string // the keyword; default by format
	Offset  int64  // position of the data in a flat file, in sectors
}

// isZero reports whether the extent reads as zeros and has no file.
func (x Extent) isZero() bool { return x.Type == "ZERO" || x.Access == "NOACCESS" }

// A Disk describes the files of a chain that was written.
type Disk struct {
	Folder string   // folder with all files
	Name   string   // name of the top layer's descriptor, which a test opens
	Names  []string // names of all descriptors, base first
	Want   *Overlay // expected content of the disk
}

// Path returns the path of the top layer's descriptor.
func (d *Disk) Path() string { return filepath.Join(d.Folder, d.Name) }

// Write creates the files of the chain in folder. It fails if one of them exists.
func (c Chain) Write(folder string) (*Disk, error) {
	d := &Disk{Folder: folder, Want: &Overlay{seed: c.Seed}}
	for i := range c.Layers {
		l := c.withDefaults(i, d)
		d.Want.resize(l.Sectors)
		if err := l.writeFiles(folder); err != nil {
			return nil, fmt.Errorf("make layer %d: %w", i, err)
		}
		d.Names = append(d.Names, l.descriptorName())
		d.Name = l.descriptorName()
	}
	return d, nil
}

// A layer is a Layer while it is written.
type layer struct {
	Layer
	seed      uint64     // seed of the chain
	stem      string     // common prefix of its file names
	parent    string     // name of the descriptor below; empty for the base
	cid       uint32     // content id of this layer
	parentCID uint32     // content id of the parent; all ones for the base
	writer    uint8      // number of the layer in the Overlay: 1 for the base
	rnd       *rand.Rand // source of random choices
	want      *Overlay   // expected content, which writing the layer updates
}

// withDefaults returns layer i with its defaults filled in. below describes the layers that were
// written before.
func (c Chain) withDefaults(i int, below *Disk) *layer {
	l := &layer{Layer: c.Layers[i], seed: c.Seed, writer: uint8(i + 1), want: below.Want, parent: below.Name}
	l.rnd = rand.New(rand.NewPCG(c.Seed, uint64(i)))
	l.stem = cmp.Or(c.Name, "disk")
	if i > 0 {
		l.stem += fmt.Sprintf("-%06d", i)
	}
	l.cid, l.parentCID = c.layerCID(i), c.layerCID(i-1)
	l.Sectors = cmp.Or(l.Sectors, below.Want.Size()/sector)
	l.Grain = cmp.Or(l.Grain, map[Format]int64{COWD: 1, SESparse: 8}[l.Format], 128)
	if len(l.Extents) == 0 {
		l.Extents = []Extent{{Sectors: l.Sectors}}
	}
	return l
}

// layerCID returns the content id of layer i. Base disks of VMware often have fffffffe. The id below a
// base is ffffffff.
func (c Chain) layerCID(i int) uint32 {
	switch {
	case i < 0:
		return 0xffffffff
	case i == 0 && c.Seed%2 == 0:
		return 0xfffffffe
	}
	return uint32(mixBits(c.Seed+uint64(i))) &^ 1
}

// writeFiles writes the extents and the descriptor of the layer.
func (l *layer) writeFiles(folder string) error {
	var off int64
	for i, x := range l.Extents {
		p := l.newPlan(off, x)
		off += x.Sectors
		if x.isZero() {
			continue
		}
		if err := l.writeExtent(filepath.Join(folder, l.fileName(i)), p); err != nil {
			return err
		}
	}
	if l.isEmbedded() {
		return nil
	}
	return writeText(filepath.Join(folder, l.descriptorName()), l.descriptorText())
}

// writeExtent creates the file of one extent. Errors of the writers appear in finish.
func (l *layer) writeExtent(path string, p *plan) error {
	f, err := createFile(path)
	if err != nil {
		return err
	}
	switch l.Format {
	case Flat:
		l.writeFlat(f, p)
	case Sparse:
		l.writeHosted(f, p)
	case Stream:
		l.writeStream(f, p)
	case COWD:
		l.writeCOWD(f, p)
	case SESparse:
		l.writeSESparse(f, p)
	}
	return f.finish()
}

// isEmbedded reports whether the only data file contains the descriptor.
func (l *layer) isEmbedded() bool {
	return l.Format == Stream || l.Format == Sparse && len(l.Extents) == 1 && !l.Hosted.Separate
}

// descriptorName returns the name of the file that a user opens.
func (l *layer) descriptorName() string { return l.stem + ".vmdk" }

// fileName returns the name of the file of extent i, as the product that creates such disks names it.
func (l *layer) fileName(i int) string {
	switch {
	case l.isEmbedded():
		return l.descriptorName()
	case l.Format == COWD:
		return l.numberedName("-delta", i)
	case l.Format == SESparse:
		return l.numberedName("-sesparse", i)
	case l.Format == Sparse:
		return fmt.Sprintf("%s-s%03d.vmdk", l.stem, i+1)
	case len(l.Extents) > 1:
		return fmt.Sprintf("%s-f%03d.vmdk", l.stem, i+1)
	}
	return l.stem + "-flat.vmdk"
}

// numberedName returns the file name of extent i with a suffix; the first extent has no number.
func (l *layer) numberedName(suffix string, i int) string {
	if i > 0 {
		suffix = fmt.Sprintf("-%03d%s", i+1, suffix)
	}
	return l.stem + suffix + ".vmdk"
}
