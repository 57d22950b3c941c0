package qcow2

import (
	"context"
	"encoding/binary"

	"github.com/decamp/decamp/internal/disk"
)

// copied is the flag of L1 and L2 entries whose cluster has a refcount of 1, which is true for all
// clusters that this package writes.
const copied = 1 << 63

// A block is one cluster of a table with its position in the file.
type block struct {
	off  int64  // offset in the file
	name string // kind of table for errors, such as "L2 table"
	data []byte // content, valid until the next call
}

// writeTables writes all tables. Clusters of a table without entries are not written and stay holes.
func (im *Image) writeTables(ctx context.Context) error {
	return im.eachBlock(func(b block) error { return im.file.WriteAt(ctx, b.data, b.off) })
}

// eachBlock passes the blocks of all tables for the clusters in use to emit, in the order in which
// Finish writes them. It stops at the first error.
func (im *Image) eachBlock(emit func(block) error) error {
	for i := range im.tableCount() {
		if err := im.emitL2(i, emit); err != nil {
			return err
		}
	}
	return im.eachBesidesL2(emit)
}

// eachBesidesL2 passes the blocks of all tables but the L2 tables.
func (im *Image) eachBesidesL2(emit func(block) error) error {
	if err := im.eachRefBlock(emit); err != nil {
		return err
	}
	err := eachOfList(im.l1, "L1 table", im.tableCount(), emit, func(i int64) uint64 {
		if !im.tableUsed(i) {
			return 0
		}
		return uint64(im.l2.Off+i*clusterSize) | copied
	})
	if err != nil {
		return err
	}
	return eachOfList(im.refTable, "refcount table", im.refBlocks.Len/clusterSize, emit, func(i int64) uint64 {
		if !im.blockUsed(i) {
			return 0
		}
		return uint64(im.refBlocks.Off + i*clusterSize)
	})
}

// eachOfList passes the blocks of a table of n 8-byte entries, which fills region. entry returns entry
// i.
func eachOfList(region disk.Range, what string, n int64, emit func(block) error, entry func(int64) uint64) error {
	b := make([]byte, clusterSize)
	for off := int64(0); off < region.Len; off += clusterSize {
		clear(b)
		for i := off / 8; i < min(n, (off+clusterSize)/8); i++ {
			binary.BigEndian.PutUint64(b[i*8-off:], entry(i))
		}
		if err := emit(block{region.Off + off, what, b}); err != nil {
			return err
		}
	}
	return nil
}

// tableUsed reports whether any cluster that L2 table i maps is in use.
func (im *Image) tableUsed(i int64) bool { return !im.used.Next(im.tableRange(i)).Empty() }

// emitL2 passes L2 table i to emit, if the table has entries.
func (im *Image) emitL2(i int64, emit func(block) error) error {
	if !im.tableUsed(i) {
		return nil
	}
	b, span := make([]byte, clusterSize), im.tableRange(i)
	im.eachUsed(span, func(off int64) {
		binary.BigEndian.PutUint64(b[(off-span.Off)/clusterSize*8:], uint64(im.data.Off+off)|copied)
	})
	return emit(block{im.l2.Off + i*clusterSize, "L2 table", b})
}

// eachUsed calls f with the offset of each cluster in use in r. r must consist of whole clusters.
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

// blockUsed reports whether refcount block i counts a cluster in use. A block that counts tables is
// always in use: so the test need not consider whether the block counts itself.
func (im *Image) blockUsed(i int64) bool {
	r := im.blockRange(i)
	return r.Off < im.data.Off || r.End() > im.data.End() || !im.used.Next(im.onDisk(r)).Empty()
}

// onDisk returns the part of the disk that lies in r of the file.
func (im *Image) onDisk(r disk.Range) disk.Range {
	r = r.Intersect(im.data)
	return disk.Range{Off: r.Off - im.data.Off, Len: r.Len}
}

// eachRefBlock passes the refcount blocks that are in use.
func (im *Image) eachRefBlock(emit func(block) error) error {
	b := make([]byte, clusterSize)
	for i := range im.refBlocks.Len / clusterSize {
		if !im.blockUsed(i) {
			continue
		}
		clear(b)
		im.countClusters(b, im.blockRange(i))
		if err := emit(block{im.refBlocks.Off + i*clusterSize, "refcount block", b}); err != nil {
			return err
		}
	}
	return nil
}

// countClusters fills a refcount block for span of the file, with 1 for each cluster in use.
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

// metaUsed reports whether the cluster at off of the file is in use. off must not be in the data.
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
