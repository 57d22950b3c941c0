package vmdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/decamp/decamp/internal/disk"
)

// A Disk reads a disk by its files, down to the base of its chain. It is a disk.Source.
type Disk struct {
	chain   chain
	layers  []Layer
	files   []*file
	cache   tableCache
	readers sync.Pool // pool of *reader

	mu       sync.Mutex
	warnings []string
}

// Format is the format of an extent's file.
type Format string

const (
	FormatFlat     Format = "flat"
	FormatZero     Format = "zero" // no file
	FormatSparse   Format = "sparse"
	FormatStream   Format = "streamOptimized"
	FormatCOWD     Format = "cowd"
	FormatSESparse Format = "seSparse"
)

// A Layer is one disk of a chain.
type Layer struct {
	Name       string      // name of the file that was opened
	Descriptor *Descriptor // descriptor; nil if the file had none
	CreateType string      // createType as written; empty without a descriptor
	CID        CID         // content id; 0 without a descriptor
	ParentCID  CID         // NoParent for a base disk
	Size       int64       // bytes
	Format     Format      // format of the first extent with a file
	Grain      int64       // bytes; 0 for flat ones
	Parts      []Part      // its extents, in order and without gaps
}

// A Part is one extent of a layer.
type Part struct {
	disk.Range        // range of the layer's disk
	Format     Format // how the file holds it
	File       int    // index into Files; -1 without a file
	Grain      int64  // bytes; 0 for flat ones

	at int64 // offset in the file of a flat part's first byte
}

// Size returns the virtual size in bytes.
func (d *Disk) Size() int64 { return d.chain.size() }

// Hints prefers few large requests: the more runs a read has, the better they can be ordered.
func (d *Disk) Hints() disk.Hints {
	return disk.Hints{Request: pieceSize, Streams: 4, Span: 32 << 20}
}

// Layers returns the layers of the disk, the youngest first.
func (d *Disk) Layers() []Layer { return slices.Clone(d.layers) }

// Files returns the names of the files that hold data, as Run.File counts them.
func (d *Disk) Files() []string {
	names := make([]string, len(d.files))
	for i, f := range d.files {
		names[i] = f.name
	}
	return names
}

// Warnings returns what the operator should know about the disk, in the order it was
// found. Damage that could be healed is found only when the place is read.
func (d *Disk) Warnings() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.warnings)
}

// warn adds a warning, once.
func (d *Disk) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.warnings, text) {
		d.warnings = append(d.warnings, text)
	}
}

// Runs passes the runs of r to yield, in order and without gaps: each byte has the kind of the youngest
// layer that contains it. It stops when yield returns false.
func (d *Disk) Runs(ctx context.Context, r disk.Range, yield func(Run) bool) error {
	if err := disk.CheckRange(d.Size(), r); err != nil {
		return err
	}
	return walkRuns(ctx, d.chain.newCursor(), r, yield)
}

// LayerRuns is Runs for layer i alone, within its own size.
func (d *Disk) LayerRuns(ctx context.Context, i int, r disk.Range, yield func(Run) bool) error {
	l := d.chain[i]
	if err := disk.CheckRange(l.size(), r); err != nil {
		return err
	}
	return walkRuns(ctx, l.newCursor(), r, yield)
}

// Close closes all files.
func (d *Disk) Close() error {
	var errs []error
	for _, f := range d.files {
		errs = append(errs, f.src.Close())
	}
	return errors.Join(errs...)
}
