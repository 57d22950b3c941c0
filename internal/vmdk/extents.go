package vmdk

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
)

const (
	// smallest hole between data that Extents reports, in bytes. Testing the bytes of a shorter one is
	// cheaper, and the list of a fragmented disk stays small.
	minHole = 64 << 10

	// number of bytes of a file for which one call requests the holes
	holeQuery = 256 << 20
)

// Extents describes r by the tables of the layers, and by the holes that the file system reports for
// flat files. Holes shorter than 64 KiB between data count as data.
func (d *Disk) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := disk.CheckRange(d.Size(), r); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	list := extentList{off: r.Off}
	var inner error
	err := walkRuns(ctx, d.chain.newCursor(), r, func(run Run) bool {
		inner = d.appendRun(ctx, &list, run)
		return inner == nil
	})
	if err == nil {
		err = inner
	}
	if err != nil {
		return nil, err
	}
	return list.finishList(), nil
}

// appendRun adds a run to the list. Within a run in a flat file it also adds the holes of the file.
func (d *Disk) appendRun(ctx context.Context, list *extentList, run Run) error {
	if run.Kind != Data {
		list.add(disk.Zero, run.Len)
		return nil
	}
	f := d.files[run.File]
	if !f.holes || run.Len < minHole {
		list.add(disk.Data, run.Len)
		return nil
	}
	for at := run.At; at < run.At+run.Len; at += holeQuery {
		part := disk.Range{Off: at, Len: min(holeQuery, run.At+run.Len-at)}
		extents, err := f.src.Extents(ctx, part)
		if err != nil {
			return err
		}
		for _, e := range extents {
			list.add(e.Kind, e.Len)
		}
	}
	return nil
}

// An extentList builds a list of extents without zero extents shorter than minHole between data.
type extentList struct {
	off  int64         // offset of the next extent that is added
	hole int64         // zeros up to off that are not in list yet
	list []disk.Extent // finished extents
}

// add appends n bytes of kind k at off. Zeros are collected in hole until data follows.
func (l *extentList) add(k disk.Kind, n int64) {
	if k == disk.Zero {
		l.hole += n
		l.off += n
		return
	}
	last := len(l.list) - 1
	switch {
	case last >= 0 && l.hole < minHole:
		l.list[last].Len += l.hole + n
	default:
		l.flushHole()
		l.list = append(l.list, disk.Extent{Range: disk.Range{Off: l.off, Len: n}, Kind: disk.Data})
	}
	l.hole = 0
	l.off += n
}

// flushHole appends the collected zeros as one extent.
func (l *extentList) flushHole() {
	if l.hole > 0 {
		l.list = append(l.list, disk.Extent{Range: disk.Range{Off: l.off - l.hole, Len: l.hole}, Kind: disk.Zero})
		l.hole = 0
	}
}

// finishList appends trailing zeros and returns the list.
func (l *extentList) finishList() []disk.Extent {
	l.flushHole()
	return l.list
}
