package qcow2

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
)

// Unfinished reads an image that Create made and Finish has not completed. It is a
// disk.Source. It needs no tables: a cluster is where the layout puts it, and one that
// was never written is a hole in the file.
type Unfinished struct {
	layout
	file *rawfile.Source
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

func unfinishedLayout(file disk.Source) (layout, error) {
	first := make([]byte, min(rawfile.Align, file.Size()))
	if err := file.ReadAt(context.Background(), first, 0); err != nil {
		return layout{}, err
	}
	size, ok := parseNote(first)
	if !ok {
		return layout{}, fault.New(fault.Corrupt, "it does not begin as one of ours")
	}
	l, err := newLayout(size)
	if err == nil && l.data.End() != file.Size() {
		err = fault.New(fault.Corrupt, "it has %d bytes, not %d", file.Size(), l.data.End())
	}
	return l, err
}

// Unfinish makes an image of ours for a disk of size bytes an unfinished one again, whatever its
// tables say: Open then finds by the file's holes what is in use, and Finish writes them anew.
// It is for tables that are damaged. A file of another length is fault.Conflict: somebody else
// wrote to it.
func Unfinish(path string, size int64) (err error) {
	l, err := newLayout(size)
	if err != nil {
		return err
	}
	file, err := rawfile.Open(path, rawfile.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if file.Size() != l.data.End() {
		return notOurs(path, "it has %d bytes, not %d", file.Size(), l.data.End())
	}
	note := make([]byte, clusterSize) // with the rest of the header's cluster, which nothing else writes
	copy(note, encodeNote(size))
	return errors.Join(file.WriteAt(context.Background(), note, 0), file.Sync(context.Background()))
}

// Size returns the disk's size in bytes.
func (u *Unfinished) Size() int64 { return u.size }

// Medium says where all bytes read so far came from, as rawfile.Source.Medium does.
func (u *Unfinished) Medium() string { return u.file.Medium() }

// Hints are the file's.
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
