package vmdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/decamp/decamp/internal/disk"
)

// A Disk reads a disk from its files, including all parents. It is a disk.Source and safe for
// concurrent use.
type Disk struct {
	chain   chain      // layers with their tables, the youngest first
	layers  []Layer    // descriptions of the layers in chain
	files   []*file    // open files of all layers; Close closes them
	cache   tableCache // decoded tables of all layers
	readers sync.Pool  // pool of *reader

	mu       sync.Mutex // guards warnings
	warnings []string   // warnings without duplicates, oldest first
}

// Format is the format of an extent's file.
type Format string

const (
	FormatFlat     Format = "flat"            // raw bytes
	FormatZero     Format = "zero"            // no file: reads as zeros
	FormatSparse   Format = "sparse"          // hosted sparse ("KDMV"), not compressed
	FormatStream   Format = "streamOptimized" // hosted sparse with compressed grains, as in an OVF export
	FormatCOWD     Format = "cowd"            // delta on VMFS5 and NFS ("vmfsSparse")
	FormatSESparse Format = "seSparse"        // delta on VMFS6 ("seSparse")
)

// A Layer is one disk of a chain.
type Layer struct {
	Name       string      // name of the file that was opened
	Descriptor *Descriptor // descriptor; nil if the file had none
	CreateType string      // createType as written; empty without a descriptor
	CID        CID         // content id; 0 without a descriptor
	ParentCID  CID         // NoParent for a base disk
	Size       int64       // size of the layer's disk in bytes; it may differ from the sizes of other layers
	Format     Format      // format of the first extent with a file
	Grain      int64       // size of a grain in bytes; 0 for flat files
	Parts      []Part      // extents in the order of the disk, without gaps
}

// A Part is one extent of a layer.
type Part struct {
	disk.Range        // range of the layer's disk
	Format     Format // format of the file that contains the range
	File       int    // index into Files; -1 if the range has no file
	Grain      int64  // size of a grain in bytes; 0 for flat files

	at int64 // offset in the file of a flat part's first byte
}

// Size returns the virtual size in bytes.
func (d *Disk) Size() int64 { return d.chain.size() }

// Hints returns large requests, because the runs of a large read can be ordered better.
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

// Warnings returns what the user should know about the disk, in the order in which it was found. Damage
// that a redundant table repairs is found only when that part of the disk is read, so the list may
// grow.
func (d *Disk) Warnings() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.warnings)
}

// warn adds a warning unless the same text is in the list. It is safe for concurrent use.
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

// LayerRuns passes the runs of layer i to yield, as Runs does for the whole chain. r must lie within
// the size of that layer.
func (d *Disk) LayerRuns(ctx context.Context, i int, r disk.Range, yield func(Run) bool) error {
	l := d.chain[i]
	if err := disk.CheckRange(l.size(), r); err != nil {
		return err
	}
	return walkRuns(ctx, l.newCursor(), r, yield)
}

// Close closes the files of all layers. No other method may be running or called after it.
func (d *Disk) Close() error {
	var errs []error
	for _, f := range d.files {
		errs = append(errs, f.src.Close())
	}
	return errors.Join(errs...)
}
