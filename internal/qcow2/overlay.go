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

// WriteAbove writes an image to path, which must not exist. It contains the clusters of src that the
// ranges changed touch; the backing file b has the rest of the disk. A cluster of zeros is only marked.
// The ranges must be in order. The image is a temporary layer: nothing is synced. After an error
// the new file is removed.
func WriteAbove(ctx context.Context, path string, b Backing, src disk.Source, changed []disk.Range) (err error) {
	w := newOverlayWriter(src, changed)
	if err := w.checkLimits(b); err != nil {
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
	if err := w.writeClusters(ctx, f); err != nil {
		return err
	}
	w.placeRefcounts()
	return writeAll(f, map[int64][]byte{0: w.encodeHeader(b), w.l1: w.l1Table(), w.refTable: w.refTableBytes(), w.refBlocks: w.refBlockBytes()})
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

// OpenOver opens an image with the disk below as its backing file, whatever name its header contains.
// The Source owns below. An image without a backing file is fault.Invalid.
func OpenOver(path string, below disk.Source) (*Source, error) {
	s, err := OpenAbove(path)
	if err != nil {
		return nil, err
	}
	if s.hasBacking() {
		s.backing = below
		return s, nil
	}
	return nil, errors.Join(fault.New(fault.Invalid, "%s lies above no other image", path), s.Close())
}

// An overlayWriter writes an image of few clusters. Clusters with data are adjacent in the file:
//
//	header | L1 | L2 tables in use | data | refcount blocks | refcount table
type overlayWriter struct {
	src          disk.Source   // content of the whole disk
	clusters     []int64       // numbers of the clusters to write, ascending
	dataClusters int64         // number of clusters with data that are in the file so far
	tables       []int64       // numbers of the L2 tables in use, ascending
	tableIndex   map[int64]int // index in tables by table number

	l1, l2, data, refBlocks, refTable, end int64 // offsets in the file
	l1Entries, blocks                      int64
}

// newOverlayWriter returns a writer for the clusters of src that changed touches.
func newOverlayWriter(src disk.Source, changed []disk.Range) *overlayWriter {
	w := &overlayWriter{src: src, tableIndex: map[int64]int{}, l1Entries: ceilDiv(src.Size(), clusterSize*entriesPerL2)}
	for _, r := range changed {
		for c := r.Off / clusterSize; c*clusterSize < r.End(); c++ {
			if n := len(w.clusters); n > 0 && w.clusters[n-1] >= c {
				continue
			}
			w.clusters = append(w.clusters, c)
			if t := c / entriesPerL2; len(w.tables) == 0 || w.tables[len(w.tables)-1] != t {
				w.tableIndex[t] = len(w.tables)
				w.tables = append(w.tables, t)
			}
		}
	}
	w.l1 = clusterSize
	w.l2 = w.l1 + ceilDiv(w.l1Entries*8, clusterSize)*clusterSize
	w.data = w.l2 + int64(len(w.tables))*clusterSize
	return w
}

// placeRefcounts places the regions after the data. It increases the number of refcount blocks until
// they count all clusters of the file, including their own.
func (w *overlayWriter) placeRefcounts() {
	w.refBlocks = w.data + w.dataClusters*clusterSize
	for {
		w.blocks++
		w.refTable = w.refBlocks + w.blocks*clusterSize
		w.end = w.refTable + ceilDiv(w.blocks*8, clusterSize)*clusterSize
		if w.blocks*countsPerBlock >= w.end/clusterSize {
			return
		}
	}
}

// checkLimits fails if the backing file or the disk size does not fit into a header.
func (w *overlayWriter) checkLimits(b Backing) error {
	if b.Path == "" || len(b.Path) > maxBackingName || b.Format != "raw" && b.Format != "qcow2" {
		return fault.New(fault.Invalid, "an image above %q, which is %q", b.Path, b.Format)
	}
	if w.l1Entries == 0 || w.l1Entries > maxL1/8 {
		return fault.New(fault.Unsupported, "qcow2 image of %d bytes", w.src.Size())
	}
	return nil
}

// encodeHeader returns the header with path and format of the backing file.
func (w *overlayWriter) encodeHeader(b Backing) []byte {
	h := header{version: 3, clusterBits: clusterBits, size: w.src.Size(), l1Entries: uint32(w.l1Entries), l1Offset: w.l1,
		refTable: w.refTable, refTableCount: uint32((w.end - w.refTable) / clusterSize)}
	out := h.encode()
	out = binary.BigEndian.AppendUint32(out, extensionBackingFormat)
	out = binary.BigEndian.AppendUint32(out, uint32(len(b.Format)))
	out = append(out, b.Format...)
	out = append(out, make([]byte, -len(out)&7+8)...) // filled up; then the end of extensions
	binary.BigEndian.PutUint64(out[8:], uint64(len(out)))
	binary.BigEndian.PutUint32(out[16:], uint32(len(b.Path)))
	return append(out, b.Path...)
}

// l1Table returns the L1 table in the format of the file.
func (w *overlayWriter) l1Table() []byte {
	out := make([]byte, w.l2-w.l1)
	for i, t := range w.tables {
		binary.BigEndian.PutUint64(out[t*8:], uint64(w.l2+int64(i)*clusterSize)|copied)
	}
	return out
}

// refBlockBytes returns the refcount blocks. Every cluster of the file has a refcount of 1.
func (w *overlayWriter) refBlockBytes() []byte {
	out := make([]byte, w.refTable-w.refBlocks)
	for i := range w.end / clusterSize {
		out[i*2+1] = 1
	}
	return out
}

// refTableBytes returns the refcount table in the format of the file.
func (w *overlayWriter) refTableBytes() []byte {
	out := make([]byte, w.end-w.refTable)
	for i := range w.blocks {
		binary.BigEndian.PutUint64(out[i*8:], uint64(w.refBlocks+i*clusterSize))
	}
	return out
}

// writeClusters writes the data, and each L2 table when it is complete.
func (w *overlayWriter) writeClusters(ctx context.Context, f *os.File) error {
	table, cluster := make([]byte, clusterSize), make([]byte, clusterSize)
	for i, c := range w.clusters {
		entry, err := w.writeCluster(ctx, f, c, cluster)
		if err != nil {
			return err
		}
		binary.BigEndian.PutUint64(table[c%entriesPerL2*8:], entry)
		t := c / entriesPerL2
		if i+1 < len(w.clusters) && w.clusters[i+1]/entriesPerL2 == t {
			continue
		}
		if err := writeAll(f, map[int64][]byte{w.l2 + int64(w.tableIndex[t])*clusterSize: table}); err != nil {
			return err
		}
		clear(table)
	}
	return nil
}

// writeCluster writes cluster c of the disk and returns its L2 entry. buf is memory for one cluster. A
// cluster of zeros only has an entry, because a guest may have trimmed most of its disk.
func (w *overlayWriter) writeCluster(ctx context.Context, f *os.File, c int64, buf []byte) (entry uint64, err error) {
	p := buf[:min(clusterSize, w.src.Size()-c*clusterSize)]
	clear(buf[len(p):])
	if err := w.src.ReadAt(ctx, p, c*clusterSize); err != nil {
		return 0, err
	}
	if disk.AllZero(p) {
		return flagZero, nil
	}
	at := w.data + w.dataClusters*clusterSize
	w.dataClusters++
	return uint64(at) | copied, writeAll(f, map[int64][]byte{at: buf})
}

// writeAll writes the blocks, which are keyed by their offset in the file.
func writeAll(f *os.File, blocks map[int64][]byte) error {
	for off, p := range blocks {
		if _, err := f.WriteAt(p, off); err != nil {
			return err
		}
	}
	return nil
}
