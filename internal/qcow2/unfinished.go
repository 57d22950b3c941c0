package qcow2

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
)

// An Unfinished reads an image before its Finish. It is a disk.Source. It needs no tables, because the
// layout determines the position of each cluster. Clusters that were never written are holes of the
// file.
type Unfinished struct {
	layout
	file *rawfile.Source // content of the image file
}

// OpenUnfinished opens an unfinished image for reading, also while an Image of this
// process writes to it. Any other file is fault.Corrupt.
func OpenUnfinished(path string, o SourceOptions) (*Unfinished, error) {
	file, err := rawfile.OpenSource(path, rawfile.SourceOptions{Direct: o.Direct})
	if err != nil {
		return nil, err
	}
	l, err := unfinishedLayout(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open unfinished qcow2 image %s: %w", path, err), file.Close())
	}
	return &Unfinished{layout: l, file: file}, nil
}

// unfinishedLayout returns the layout of an unfinished image. Any other file is fault.Corrupt.
func unfinishedLayout(file disk.Source) (layout, error) {
	first := make([]byte, min(rawfile.Align, file.Size()))
	if err := file.ReadAt(context.Background(), first, 0); err != nil {
		return layout{}, err
	}
	l, ok := parseNote(first)
	if !ok {
		return layout{}, fault.New(fault.Corrupt, "it does not begin as an image of decamp")
	}
	if l.end() != file.Size() {
		return layout{}, fault.New(fault.Corrupt, "it has %d bytes, not %d", file.Size(), l.end())
	}
	return l, nil
}

// Unfinish makes an image of this package for a disk of size bytes unfinished again, regardless of its
// tables: Open then finds the clusters in use by the file's holes, and Finish writes the tables again.
// It repairs damaged tables. A file of an impossible length is fault.Conflict: another program wrote to
// it.
func Unfinish(path string, size int64) (err error) {
	file, err := rawfile.Open(path, rawfile.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	l, err := damagedLayout(path, size, file.Size())
	if err != nil {
		return err
	}
	note := make([]byte, clusterSize) // including the rest of the header's cluster, which nothing else writes
	copy(note, encodeNote(l))
	return errors.Join(file.WriteAt(context.Background(), note, 0), file.Sync(context.Background()))
}

// damagedLayout determines the layout of a file of that length by its header or, if the header is
// damaged, by the length.
func damagedLayout(path string, size, length int64) (layout, error) {
	if l, err := writtenLayout(path, size); err == nil && l.end() == length {
		return l, nil
	}
	fresh, err := newLayout(size)
	if err != nil {
		return layout{}, err
	}
	for data := fresh.data.Off; data > 0; data -= dataAlign {
		if l, err := layoutAt(size, data); err == nil && l.end() == length {
			return l, nil
		}
	}
	return layout{}, foreignImage(path, "it has %d bytes, as no image of a disk of %d", length, size)
}

// writtenLayout returns the layout by the first bytes of the file at path.
func writtenLayout(path string, size int64) (l layout, err error) {
	src, err := rawfile.OpenSource(path, rawfile.SourceOptions{})
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	first := make([]byte, min(rawfile.Align, src.Size()))
	if err := src.ReadAt(context.Background(), first, 0); err != nil {
		return l, err
	}
	l, _, err = foundLayout(path, first, size)
	return l, err
}

// Size returns the disk's size in bytes.
func (u *Unfinished) Size() int64 { return u.size }

// Medium returns the origin of all bytes read so far, as rawfile.Source.Medium does.
func (u *Unfinished) Medium() string { return u.file.Medium() }

// Hints returns the hints of the file.
func (u *Unfinished) Hints() disk.Hints { return u.file.Hints() }

// Close releases the image.
func (u *Unfinished) Close() error { return u.file.Close() }

// ReadAt fills p from off.
func (u *Unfinished) ReadAt(ctx context.Context, p []byte, off int64) error {
	r := disk.Range{Off: off, Len: int64(len(p))}
	if err := disk.CheckRange(u.size, r); err != nil {
		return err
	}
	return u.file.ReadAt(ctx, p, u.inFile(r).Off)
}

// Extents describes r by the file's holes.
func (u *Unfinished) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := disk.CheckRange(u.size, r); err != nil {
		return nil, err
	}
	extents, err := u.file.Extents(ctx, u.inFile(r))
	for i := range extents {
		extents[i].Off -= u.data.Off
	}
	return extents, err
}
