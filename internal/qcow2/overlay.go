package qcow2

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
)

// A Backing is the backing file of an image.
type Backing struct {
	Path   string // path as in the header: absolute, or relative to the image's folder
	Format string // "raw" or "qcow2"
}

// WriteAbove writes an image to path, which must not exist, with the clusters of src that changed
// touches; the backing file has the rest of the disk. A cluster of zeros is only marked. The ranges
// must be ordered. The image is a temporary layer: nothing is synced. After an error no file is left.
func WriteAbove(ctx context.Context, path string, b Backing, src disk.Source, changed []disk.Range) (err error) {
	a := newOverlayWriter(src, changed)
	if err := a.checkLimits(b); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fault.Room(path, err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
		}
	}()
	if err := a.writeClusters(ctx, f); err != nil {
		return err
	}
	a.placeRefcounts()
	return writeAll(f, map[int64][]byte{0: a.encodeHeader(b), a.l1: a.l1Table(), a.refTable: a.refTableBytes(), a.refBlocks: a.refBlockBytes()})
}

// OpenAbove opens an image of WriteAbove without its backing file: clusters that the image does not
// contain read as zeros.
func OpenAbove(path string) (*Source, error) {
	file, err := rawfile.OpenSource(path, rawfile.SourceOptions{})
	if err != nil {
		return nil, err
	}
	s, err := newSource(file, filePath(path), newShared())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open qcow2 image %s: %w", path, err), file.Close())
	}
	return s, nil
}

// OpenOver opens an image with beneath as its backing file, regardless of the name in its header.
// Closing it closes beneath.
func OpenOver(path string, beneath disk.Source) (*Source, error) {
	s, err := OpenAbove(path)
	if err != nil {
		return nil, err
	}
	if s.hasBacking() {
		s.backing = beneath
		return s, nil
	}
	return nil, errors.Join(fault.New(fault.Invalid, "%s lies above no other image", path), s.Close())
}

// An above is an image of few clusters. Those with data follow each other in the file:
//
//	header | L1 | L2 tables in use | data | refcount blocks | refcount table
type overlayWriter struct {
	src          disk.Source
	clusters     []int64       // clusters of the disk, in order
	dataClusters int64         // how many of them have data in the file, so far
	tables       []int64       // numbers of L2 tables in use, in order
	tableIndex   map[int64]int // and their places among those

	l1, l2, data, refBlocks, refTable, end int64 // offsets in the file
	l1Entries, blocks                      int64
}

func newOverlayWriter(src disk.Source, changed []disk.Range) *overlayWriter {
	a := &overlayWriter{src: src, tableIndex: map[int64]int{}, l1Entries: ceilDiv(src.Size(), clusterSize*entriesPerL2)}
	for _, r := range changed {
		for c := r.Off / clusterSize; c*clusterSize < r.End(); c++ {
			if n := len(a.clusters); n > 0 && a.clusters[n-1] >= c {
				continue
			}
			a.clusters = append(a.clusters, c)
			if t := c / entriesPerL2; len(a.tables) == 0 || a.tables[len(a.tables)-1] != t {
				a.tableIndex[t] = len(a.tables)
				a.tables = append(a.tables, t)
			}
		}
	}
	a.l1 = clusterSize
	a.l2 = a.l1 + ceilDiv(a.l1Entries*8, clusterSize)*clusterSize
	a.data = a.l2 + int64(len(a.tables))*clusterSize
	return a
}

// placeRefcounts places the parts after the data, and computes the number of refcount blocks, which count
// themselves as well.
func (a *overlayWriter) placeRefcounts() {
	a.refBlocks = a.data + a.dataClusters*clusterSize
	for {
		a.blocks++
		a.refTable = a.refBlocks + a.blocks*clusterSize
		a.end = a.refTable + ceilDiv(a.blocks*8, clusterSize)*clusterSize
		if a.blocks*countsPerBlock >= a.end/clusterSize {
			return
		}
	}
}

// checkLimits refuses what no header can say.
func (a *overlayWriter) checkLimits(b Backing) error {
	if b.Path == "" || len(b.Path) > maxBackingName || b.Format != "raw" && b.Format != "qcow2" {
		return fault.New(fault.Invalid, "an image above %q, which is %q", b.Path, b.Format)
	}
	if a.l1Entries == 0 || a.l1Entries > maxL1/8 {
		return fault.New(fault.Unsupported, "qcow2 image of %d bytes", a.src.Size())
	}
	return nil
}

// encodeHeader returns the header with the name of the backing file.
func (a *overlayWriter) encodeHeader(b Backing) []byte {
	h := header{version: 3, clusterBits: clusterBits, size: a.src.Size(), l1Entries: uint32(a.l1Entries), l1Offset: a.l1,
		refTable: a.refTable, refTableCount: uint32((a.end - a.refTable) / clusterSize)}
	out := h.encode()
	out = binary.BigEndian.AppendUint32(out, extensionBackingFormat)
	out = binary.BigEndian.AppendUint32(out, uint32(len(b.Format)))
	out = append(out, b.Format...)
	out = append(out, make([]byte, -len(out)&7+8)...) // filled up; then the end of extensions
	binary.BigEndian.PutUint64(out[8:], uint64(len(out)))
	binary.BigEndian.PutUint32(out[16:], uint32(len(b.Path)))
	return append(out, b.Path...)
}

func (a *overlayWriter) l1Table() []byte {
	out := make([]byte, a.l2-a.l1)
	for i, t := range a.tables {
		binary.BigEndian.PutUint64(out[t*8:], uint64(a.l2+int64(i)*clusterSize)|copied)
	}
	return out
}

// refBlockBytes returns the refcount blocks: every cluster of the file is used once.
func (a *overlayWriter) refBlockBytes() []byte {
	out := make([]byte, a.refTable-a.refBlocks)
	for i := range a.end / clusterSize {
		out[i*2+1] = 1
	}
	return out
}

func (a *overlayWriter) refTableBytes() []byte {
	out := make([]byte, a.end-a.refTable)
	for i := range a.blocks {
		binary.BigEndian.PutUint64(out[i*8:], uint64(a.refBlocks+i*clusterSize))
	}
	return out
}

// writeClusters writes the data, and each L2 table once it is complete.
func (a *overlayWriter) writeClusters(ctx context.Context, f *os.File) error {
	table, cluster := make([]byte, clusterSize), make([]byte, clusterSize)
	for i, c := range a.clusters {
		entry, err := a.writeCluster(ctx, f, c, cluster)
		if err != nil {
			return err
		}
		binary.BigEndian.PutUint64(table[c%entriesPerL2*8:], entry)
		t := c / entriesPerL2
		if i+1 < len(a.clusters) && a.clusters[i+1]/entriesPerL2 == t {
			continue
		}
		if err := writeAll(f, map[int64][]byte{a.l2 + int64(a.tableIndex[t])*clusterSize: table}); err != nil {
			return err
		}
		clear(table)
	}
	return nil
}

// writeCluster writes cluster c of the disk, by way of buf, and returns its L2 entry. Zeros are in the
// entry alone: what a guest trimmed may be most of its disk.
func (a *overlayWriter) writeCluster(ctx context.Context, f *os.File, c int64, buf []byte) (entry uint64, err error) {
	p := buf[:min(clusterSize, a.src.Size()-c*clusterSize)]
	clear(buf[len(p):])
	if err := a.src.ReadAt(ctx, p, c*clusterSize); err != nil {
		return 0, err
	}
	if disk.AllZero(p) {
		return flagZero, nil
	}
	at := a.data + a.dataClusters*clusterSize
	a.dataClusters++
	return uint64(at) | copied, writeAll(f, map[int64][]byte{at: buf})
}

func writeAll(f *os.File, blocks map[int64][]byte) error {
	for off, p := range blocks {
		if _, err := f.WriteAt(p, off); err != nil {
			return err
		}
	}
	return nil
}
