package qcow2

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
)

// Grow enlarges the disk of an image to size bytes; Open opens it after that. The image must come from
// Create; a finished one becomes unfinished. The added part reads as zeros. An image of that size is
// unchanged; one of a disk of less than least bytes, or of more than size, is fault.Conflict.
//
// The data keeps its position. If larger tables do not fit before it, they follow it, as the note
// records. A crash leaves the old image, the larger image, or the old one in a file that is too long,
// which Grow repairs.
func Grow(ctx context.Context, path string, least, size int64) error {
	file, err := rawfile.Open(path, rawfile.Options{})
	if err != nil {
		return err
	}
	err = errors.Join(growFile(ctx, path, file, least, size), file.Close())
	if err != nil {
		return fmt.Errorf("grow qcow2 image: %w", err)
	}
	return nil
}

// growFile enlarges the open image in file. It reads the image by a second descriptor.
func growFile(ctx context.Context, path string, file *rawfile.File, least, size int64) error {
	src, err := rawfile.OpenSource(path, rawfile.SourceOptions{})
	if err != nil {
		return err
	}
	defer src.Close()
	was, finished, err := growLayout(ctx, path, src, least, size)
	if err != nil {
		return err
	}
	to, err := layoutAt(size, was.data.Off)
	switch {
	case err != nil:
		return err
	case was == to && file.Size() == to.end():
		return nil
	case file.Size() < was.end() || file.Size() > to.end():
		return foreignImage(path, "it has %d bytes, not %d to %d", file.Size(), was.end(), to.end())
	}
	im := newImage(was, file)
	if finished {
		if err := im.adoptTables(path, src); err != nil {
			return err
		}
	}
	return im.growTo(ctx, to)
}

// growLayout returns the layout of the image that Grow enlarges. If its Create was killed before it
// wrote the note, the image has no layout and no data: then was is empty.
func growLayout(ctx context.Context, path string, src disk.Source, least, size int64) (was layout, finished bool, err error) {
	first := make([]byte, min(rawfile.Align, src.Size()))
	if err := src.ReadAt(ctx, first, 0); err != nil {
		return was, false, err
	}
	if least == 0 && disk.AllZero(first) {
		return layout{}, false, nil
	}
	was, finished, err = foundLayout(path, first, 0)
	if err == nil && (was.size < least || was.size > size) {
		err = foreignImage(path, "its disk has %d bytes, not %d to %d", was.size, least, size)
	}
	return was, finished, err
}

// growTo changes the file to layout to. Tables that an earlier Finish wrote after the data would become
// a part of it. Therefore growTo first replaces the header by the note, and then clears them.
func (im *Image) growTo(ctx context.Context, to layout) error {
	if im.size > 0 {
		if err := im.markUnfinished(ctx); err != nil {
			return err
		}
	}
	behind := disk.Range{Off: im.data.End(), Len: im.file.Size() - im.data.End()}
	if err := im.file.Zero(ctx, behind); err != nil {
		return err
	}
	if err := im.file.Grow(ctx, to.end()); err != nil {
		return err
	}
	im.layout = to
	return im.markUnfinished(ctx)
}
