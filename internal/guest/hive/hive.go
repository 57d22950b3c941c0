// Package hive reads values of untrusted Windows registry files.
//
// It supports keys, all kinds of lists of keys, and values of all sizes. It does not support classes,
// security descriptors, links between keys, and the logs of a hive: if Windows had no time to write all
// changes into the hive, Dirty reports that, and the values may be older than those Windows would use.
//
// A hive is read in place, a page at a time, because real ones have a hundred MiB. The work is bounded: a
// Hive visits at most MaxCells cells; after that all calls return errors, for any content.
//
// The layout is that of Maxim Suhanov's "Windows registry file format specification".
package hive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/decamp/decamp/internal/guest/budget"
)

const (
	// MaxCells limits the cells that one Hive reads; each 4 KiB of a long cell count as another cell. A
	// hive of 100 MiB has two million cells, but a path needs few.
	MaxCells = 1 << 19

	// MaxValue bounds one value, in bytes.
	MaxValue = 1 << 20
)

// ErrNotFound means that a key or value does not exist. It is fs.ErrNotExist.
var ErrNotFound = fs.ErrNotExist

// errCorrupt is wrapped by errors about invalid data in the hive.
var errCorrupt = errors.New("corrupt")

const (
	baseSize = 4096       // bytes of the base block, which precedes the first cell
	noCell   = 0xffffffff // offset that means "no list"
)

// A Hive is a registry file. It and its keys share a cache and counters; they are not safe for
// concurrent use.
type Hive struct {
	pages pages  // cached pages of the file
	size  int64  // bytes of cells, from the base block
	root  uint32 // offset of the root key's cell
	dirty bool   // the last changes may be missing
	cells int    // cells read so far, at most MaxCells

	budget *budget.Budget // budget of the examination
}

// Open reads the base block of the hive in r. All work of the Hive is charged to b.
func Open(b *budget.Budget, r io.ReaderAt) (*Hive, error) {
	base := make([]byte, baseSize)
	if _, err := r.ReadAt(base, 0); err != nil {
		return nil, err
	}
	if string(base[:4]) != "regf" {
		return nil, errors.New("no registry hive")
	}
	if major := le32(base, 20); major != 1 {
		return nil, fmt.Errorf("a hive of version %d", major)
	}
	h := &Hive{pages: pages{r: r, budget: b, cached: map[int64][]byte{}}, budget: b, size: int64(le32(base, 40)), root: le32(base, 36)}
	// Windows increments the first sequence number before a write and the second one after it.
	h.dirty = le32(base, 4) != le32(base, 8) || checksum(base) != le32(base, 508)
	return h, nil
}

// Dirty reports whether the last changes are only in the hive's logs, or were interrupted: the two
// sequence numbers differ or the checksum is wrong.
func (h *Hive) Dirty() bool { return h.dirty }

// checksum returns the checksum of the base block: the exclusive or of its words. 0 and -1 are replaced
// by 1 and -2.
func checksum(base []byte) uint32 {
	sum := uint32(0)
	for at := 0; at < 508; at += 4 {
		sum ^= le32(base, at)
	}
	switch sum {
	case 0:
		return 1
	case 0xffffffff:
		return 0xfffffffe
	}
	return sum
}

// readCell returns at most limit bytes of the cell at offset at, which counts from the first cell. It
// fails if the cell is free, exceeds the hive, or if a limit of work is reached.
func (h *Hive) readCell(at uint32, limit int) ([]byte, error) {
	if h.cells++; h.cells > MaxCells {
		return nil, budget.Exceeded("more than %d cells would be read", MaxCells)
	}
	if int64(at)+4 > h.size {
		return nil, fmt.Errorf("%w: a cell at %d of %d bytes", errCorrupt, at, h.size)
	}
	head := make([]byte, 4)
	if err := h.pages.readAt(head, baseSize+int64(at)); err != nil {
		return nil, err
	}
	length := -int64(int32(le32(head, 0))) // a cell in use has a negative size
	if length < 8 || int64(at)+length > h.size {
		return nil, fmt.Errorf("%w: a cell of %d bytes at %d of %d", errCorrupt, length, at, h.size)
	}
	b := make([]byte, min(length-4, int64(limit)))
	h.cells += len(b) / 4096 // a long cell counts as several
	if err := h.budget.Step(2 + int64(len(b)>>7)); err != nil {
		return nil, err
	}
	return b, h.pages.readAt(b, baseSize+int64(at)+4)
}

// readMarkedCell returns the cell at offset at. It fails if the cell does not begin with the two
// letters of mark or has less than least bytes.
func (h *Hive) readMarkedCell(at uint32, mark string, least, limit int) ([]byte, error) {
	b, err := h.readCell(at, limit)
	if err != nil {
		return nil, err
	}
	if len(b) < least || string(b[:2]) != mark {
		return nil, fmt.Errorf("%w: no %s in the cell at %d", errCorrupt, mark, at)
	}
	return b, nil
}

// le16 reads the little-endian 16-bit number at offset at of p.
func le16(p []byte, at int) uint16 { return binary.LittleEndian.Uint16(p[at:]) }

// le32 reads the little-endian 32-bit number at offset at of p.
func le32(p []byte, at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }
