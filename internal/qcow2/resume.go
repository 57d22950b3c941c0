package qcow2

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
)

// Open opens an image that Create made to continue writing: an unfinished one, or a finished one, which
// becomes unfinished. If another program has allocated clusters in a finished image, Open fails with
// fault.Conflict.
func Open(path string, o Options) (*Image, error) {
	var expect layout
	if o.Size > 0 {
		var err error
		if expect, err = newLayout(o.Size); err != nil {
			return nil, err
		}
	}
	length := expect.end()
	if hasBytes(path) { // the file itself determines its required length
		length = 0
	}
	file, err := rawfile.Open(path, rawfile.Options{Mode: o.Mode, Size: length})
	if err != nil {
		return nil, err
	}
	im, err := resumeImage(path, file, o.Size)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return im, nil
}

// resumeImage determines which clusters are in use. file holds the lock of the image. want is the size
// of the disk, or 0.
func resumeImage(path string, file *rawfile.File, want int64) (*Image, error) {
	src, err := rawfile.OpenSource(path, rawfile.SourceOptions{})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	first := make([]byte, min(rawfile.Align, src.Size()))
	if err := src.ReadAt(context.Background(), first, 0); err != nil {
		return nil, err
	}
	l, finished, err := foundLayout(path, first, want)
	if err != nil {
		return nil, err
	}
	if l.end() != file.Size() {
		return nil, foreignImage(path, "it has %d bytes, not %d", file.Size(), l.end())
	}
	im := newImage(l, file)
	if finished {
		err = im.adoptTables(path, src)
	} else {
		err = im.adoptHoles(src)
	}
	if err != nil {
		return nil, err
	}
	return im, im.markUnfinished(context.Background())
}

// hasBytes reports whether path is a regular file that is not empty.
func hasBytes(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() > 0
}

// foundLayout determines from its first bytes the kind of a file: unfinished, finished, or left by a
// Create that was killed early. Its disk must have want bytes, unless want is 0.
func foundLayout(path string, first []byte, want int64) (l layout, finished bool, err error) {
	l, ok := parseNote(first)
	if !ok {
		h, err := parseHeader(filePath(path), first)
		switch {
		case err == nil:
			l, err = finishedLayout(h)
			finished = true
		case want > 0 && disk.AllZero(first):
			l, err = newLayout(want)
		default:
			return l, false, foreignImage(path, "it begins neither as finished nor as unfinished")
		}
		if err != nil {
			return l, false, err
		}
	}
	if want > 0 && l.size != want {
		return l, false, foreignImage(path, "its disk has %d bytes, not %d", l.size, want)
	}
	return l, finished, nil
}

// finishedLayout returns the layout of a file with header h, if this package wrote the file. For a
// foreign header the result does not match the file.
func finishedLayout(h *header) (layout, error) {
	l, err := newLayout(h.size)
	if err != nil || h.refTable == l.refTable.Off {
		return l, err
	}
	moved, err := layoutAt(h.size, h.refTable-l.data.Len) // the refcount table follows the data
	if err != nil {
		return l, nil // another tool's, as adoptTables finds
	}
	return moved, nil
}

// foreignImage returns the fault.Conflict error for an image that this package did not write in its
// present form.
func foreignImage(path, format string, args ...any) error {
	return fault.New(fault.Conflict, "resume qcow2 image %s: "+format, append([]any{path}, args...)...).
		WithHint("move %s away and start again", filePath(path).shellQuoted())
}

// adoptHoles marks every cluster as used for which the file contains data.
func (im *Image) adoptHoles(file disk.Source) error {
	const window = 64 << 30 // window of the file in bytes, so that the list stays short
	for off := im.data.Off; off < im.data.End(); off += window {
		r := disk.Range{Off: off, Len: min(window, im.data.End()-off)}
		extents, err := file.Extents(context.Background(), r)
		if err != nil {
			return err
		}
		for _, e := range extents {
			if e.Kind == disk.Data {
				im.used.Set(im.onDisk(e.Range))
			}
		}
	}
	return nil
}

// adoptTables marks the clusters as used that the tables of a finished image map. A cluster at another
// position than in this package's layout is fault.Conflict.
func (im *Image) adoptTables(path string, file disk.Source) error {
	src, err := newSource(file, filePath(path), newShared())
	if err != nil {
		return fmt.Errorf("resume qcow2 image %s: %w", path, err)
	}
	found := *src.header
	found.length = headerV3 // qemu writes a longer one
	if found != *im.newHeader() {
		return foreignImage(path, "it was made by another tool")
	}
	for off := int64(0); off < im.data.Len; off += clusterSize {
		e, err := src.mapping.lookup(context.Background(), off)
		switch {
		case err != nil:
			return fmt.Errorf("resume qcow2 image %s: %w", path, err)
		case e.kind == unallocated:
			off = max(off, src.mapping.emptyUntil(off)-clusterSize)
		case e.kind != standard || e.off != im.data.Off+off:
			return foreignImage(path, "another tool has written to it")
		default:
			im.used.Set(disk.Range{Off: off, Len: clusterSize})
		}
	}
	return nil
}
