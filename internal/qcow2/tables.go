package qcow2

import (
	"context"
	"encoding/binary"

	"github.com/decamp/decamp/internal/disk"
)

// copied is the flag of L1 and L2 entries whose cluster has a refcount of one, which is
// all we write.
const copied = 1 << 63

// A block is one cluster of a table, and where it belongs in the file.
type block struct {
	off  int64
	name string // "L2 table", for errors
	data []byte // content, valid until the next call
}

// writeTables writes L2 tables, refcount blocks, L1 table and refcount table, each only if it has
// entries.
func (im *Image) writeTables(ctx context.Context) error {
	return im.eachBlock(func(b block) error { return im.file.WriteAt(ctx, b.data, b.off) })
}

// eachBlock passes the tables of an image with these clusters in use to tell, in the order in which
// they are written.
func (im *Image) eachBlock(tell func(block) error) error {
	for i := range im.tableCount() {
		if err := im.emitL2(i, tell); err != nil {
			return err
		}
	}
	return im.eachBesidesL2(tell)
}

func (im *Image) eachBesidesL2(tell func(block) error) error {
	if err := im.eachRefBlock(tell); err != nil {
		return err
	}
	err := eachOfList(im.l1, "L1 table", im.tableCount(), tell, func(i int64) uint64 {
		if !im.tableUsed(i) {
			return 0
		}
		return uint64(im.l2.Off+i*clusterSize) | copied
	})
	if err != nil {
		return err
	}
	return eachOfList(im.refTable, "refcount table", im.refBlocks.Len/clusterSize, tell, func(i int64) uint64 {
		if !im.blockUsed(i) {
			return 0
		}
		return uint64(im.refBlocks.Off + i*clusterSize)
	})
}

// eachOfList passes on the blocks of a table of n entries that fills region.
func eachOfList(region disk.Range, what string, n int64, tell func(block) error, entry func(int64) uint64) error {
	b := make([]byte, clusterSize)
	for off := int64(0); off < region.Len; off += clusterSize {
		clear(b)
		for i := off / 8; i < min(n, (off+clusterSize)/8); i++ {
			binary.BigEndian.PutUint64(b[i*8-off:], entry(i))
		}
		if err := tell(block{region.Off + off, what, b}); err != nil {
			return err
		}
	}
	return nil
}

// tableUsed reports whether any cluster that L2 table i maps is in use.
func (im *Image) tableUsed(i int64) bool { return !im.used.Next(im.tableRange(i)).Empty() }

// emitL2 passes on L2 table i, if it has entries.
func (im *Image) emitL2(i int64, tell func(block) error) error {
	if !im.tableUsed(i) {
		return nil
	}
	b, span := make([]byte, clusterSize), im.tableRange(i)
	im.eachUsed(span, func(off int64) {
		binary.BigEndian.PutUint64(b[(off-span.Off)/clusterSize*8:], uint64(im.data.Off+off)|copied)
	})
	return tell(block{im.l2.Off + i*clusterSize, "L2 table", b})
}

// eachUsed calls f with the offset of each cluster in use in r, whole clusters.
func (im *Image) eachUsed(r disk.Range, f func(off int64)) {
	for {
		run := im.used.Next(r)
		if run.Empty() {
			return
		}
		for off := run.Off; off < run.End(); off += clusterSize {
			f(off)
		}
		r = disk.Range{Off: run.End(), Len: r.End() - run.End()}
	}
}

// blockUsed reports whether refcount block i counts any cluster in use. All that count
// tables are taken to: it saves asking whether a block counts itself.
func (im *Image) blockUsed(i int64) bool {
	r := im.blockRange(i)
	return r.Off < im.data.Off || r.End() > im.data.End() || !im.used.Next(im.onDisk(r)).Empty()
}

// onDisk returns the part of the disk that lies in r of the file.
func (im *Image) onDisk(r disk.Range) disk.Range {
	r = r.Intersect(im.data)
	return disk.Range{Off: r.Off - im.data.Off, Len: r.Len}
}

func (im *Image) eachRefBlock(tell func(block) error) error {
	b := make([]byte, clusterSize)
	for i := range im.refBlocks.Len / clusterSize {
		if !im.blockUsed(i) {
			continue
		}
		clear(b)
		im.countClusters(b, im.blockRange(i))
		if err := tell(block{im.refBlocks.Off + i*clusterSize, "refcount block", b}); err != nil {
			return err
		}
	}
	return nil
}

// countClusters fills a refcount block for span of the file: one for each cluster in use.
func (im *Image) countClusters(block []byte, span disk.Range) {
	one := func(off int64) {
		binary.BigEndian.PutUint16(block[(off-span.Off)/clusterSize*2:], 1)
	}
	for off := span.Off; off < min(span.End(), im.l2.End()); off += clusterSize {
		if im.metaUsed(off) {
			one(off)
		}
	}
	if r := im.onDisk(span); !r.Empty() {
		im.eachUsed(r, func(off int64) { one(im.data.Off + off) })
	}
}

// metaUsed reports whether the cluster at off of the file, which is not one of the data, is in
// use.
func (im *Image) metaUsed(off int64) bool {
	in := func(r disk.Range) bool { return off >= r.Off && off < r.End() }
	switch {
	case off == 0, in(im.refTable), in(im.l1):
		return true // the header, and tables that always are
	case in(im.refBlocks):
		return im.blockUsed((off - im.refBlocks.Off) / clusterSize)
	case in(im.l2):
		return im.tableUsed((off - im.l2.Off) / clusterSize)
	}
	return false
}
