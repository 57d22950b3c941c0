package qcow2

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
	"github.com/decamp/decamp/internal/disk/rawfile"
)

// Options determine how an image is written. The zero value suits nearly all uses.
type Options struct {
	// Size is the size in bytes of the disk that Open expects; 0 accepts that of the file.
	Size int64

	// Mode is how the file is written, see rawfile.
	Mode rawfile.Mode
}

// Image is a qcow2 image that is being written. It is a disk.Target.
type Image struct {
	layout
	file *rawfile.File  // raw file with the layout's regions
	used *bitmap.Bitmap // clusters of the disk that may contain data; Finish writes tables for them
}

// Create makes a new image for a disk of size bytes that reads as zeros. It fails with
// fault.Conflict if path exists.
func Create(path string, size int64, o Options) (*Image, error) {
	l, err := newLayout(size)
	if err != nil {
		return nil, err
	}
	file, err := rawfile.Create(path, l.end(), rawfile.Options{Mode: o.Mode})
	if err != nil {
		return nil, err
	}
	im := newImage(l, file)
	if err := im.markUnfinished(context.Background()); err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(path))
	}
	return im, nil
}

// newImage returns an Image without clusters in use.
func newImage(l layout, file *rawfile.File) *Image {
	return &Image{layout: l, file: file, used: bitmap.New(l.data.Len, clusterSize)}
}

// markUnfinished replaces the header by the note, durably.
func (im *Image) markUnfinished(ctx context.Context) error {
	if err := im.file.WriteAt(ctx, encodeNote(im.layout), 0); err != nil {
		return err
	}
	return im.file.Sync(ctx)
}

// Size returns the disk's size in bytes.
func (im *Image) Size() int64 { return im.size }

// Mode returns how the file is written.
func (im *Image) Mode() rawfile.Mode { return im.file.Mode() }

// Hints returns the hints of the file.
func (im *Image) Hints() disk.Hints { return im.file.Hints() }

// WriteAt writes all of p at off.
func (im *Image) WriteAt(ctx context.Context, p []byte, off int64) error {
	r := disk.Range{Off: off, Len: int64(len(p))}
	if err := disk.CheckRange(im.size, r); err != nil {
		return err
	}
	im.used.Set(r) // before the write: a cluster with data in it must be in the tables
	return im.file.WriteAt(ctx, p, im.inFile(r).Off)
}

// Zero makes r read as zeros and whole clusters of it unallocated again.
func (im *Image) Zero(ctx context.Context, r disk.Range) error {
	if err := disk.CheckRange(im.size, r); err != nil {
		return err
	}
	if r.End() == im.size {
		r.Len = im.data.Len - r.Off // the rest of the last cluster is unused
	}
	for {
		run := im.used.Next(r)
		if run.Empty() {
			return ctx.Err()
		}
		if err := im.file.Zero(ctx, im.inFile(run)); err != nil {
			return err
		}
		im.used.Clear(run)
		r = disk.Range{Off: run.End(), Len: r.End() - run.End()}
	}
}

// Sync returns once all that was written would survive power loss. There are no tables
// to write: a resumed run finds the data by the file's holes.
func (im *Image) Sync(ctx context.Context) error { return im.file.Sync(ctx) }

// Finish writes the tables, then the header, and releases the image.
func (im *Image) Finish(ctx context.Context) error {
	if err := im.writeTables(ctx); err != nil {
		return fmt.Errorf("finish qcow2 image: %w", err)
	}
	if err := im.file.Sync(ctx); err != nil { // nothing of the above may come after the header
		return err
	}
	first := make([]byte, rawfile.Align)
	copy(first, im.newHeader().encode())
	if err := im.file.WriteAt(ctx, first, 0); err != nil {
		return err
	}
	return im.file.Finish(ctx)
}

// Close releases the image and, without Finish, leaves it unfinished.
func (im *Image) Close() error { return im.file.Close() }
