// Package ldm reads the database of Windows' dynamic disks: the volumes, and the positions of their pieces
// on the disks.
//
// Each disk of a group has the whole group's database, 1 MiB at most. A private header has its position and
// the disk's ID. Volumes consist of components, one for each mirror, and components of partitions, which are
// runs of sectors of one disk.
//
// The work is bounded by that 1 MiB: it is read at once, and references outside of it are errors.
//
// The layout is that of the Linux-NTFS project's "LDM documentation". Numbers are big-endian; many are
// preceded by a byte with their length.
package ldm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
)

// DatabaseSize is the size of the database that Windows creates, and the limit here, in bytes.
const DatabaseSize = 1 << 20

// sectorSize is the unit of positions in the database, in bytes.
const sectorSize = 512

// errCorrupt is wrapped by errors about invalid data on the disk.
var errCorrupt = errors.New("corrupt")

// A Header is the private header of a disk, which describes the disk and locates the database.
type Header struct {
	Group string // name of the disk group
	disk  string // GUID of the disk
	data  int64  // sector that positions of partitions are relative to
	base  int64  // first sector of the database
}

// Find returns the first valid private header among the sectors from off to off+length. It reads at
// most 1 MiB and returns false on read errors.
func Find(r budget.Reader, off, length int64) (Header, bool) {
	b := make([]byte, min(length, DatabaseSize)/sectorSize*sectorSize)
	if r.Budget().Step(int64(len(b)/sectorSize)) != nil {
		return Header{}, false
	}
	if _, err := r.ReadAt(b, off); err != nil {
		return Header{}, false
	}
	for ; len(b) > 0; b = b[sectorSize:] {
		if h, ok := parseHeader(b[:sectorSize]); ok {
			return h, true
		}
	}
	return Header{}, false
}

// parseHeader parses a sector as a private header of major version 2.
func parseHeader(b []byte) (Header, bool) {
	if !bytes.HasPrefix(b, []byte("PRIVHEAD")) || binary.BigEndian.Uint16(b[0xc:]) != 2 {
		return Header{}, false
	}
	h := Header{Group: zeroTerminated(b[0xf0:0x110]), disk: zeroTerminated(b[0x30:0x70])}
	data, base := binary.BigEndian.Uint64(b[0x11b:]), binary.BigEndian.Uint64(b[0x12b:])
	h.data, h.base = int64(data), int64(base)
	const most = 1 << 50
	return h, data < most && base < most
}

// zeroTerminated returns the text up to the first zero. Invalid characters become question marks.
func zeroTerminated(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return strings.ToValidUTF8(string(text), "?")
}

// Layout is the way in which a volume is distributed over its pieces.
type Layout string

// The layouts of Windows.
const (
	Simple   Layout = "simple"   // one piece
	Spanned  Layout = "spanned"  // pieces one after the other
	Striped  Layout = "striped"  // stripes (RAID 0)
	Mirrored Layout = "mirrored" // two copies (RAID 1)
	RAID5    Layout = "raid5"    // stripes with parity
	Unknown  Layout = ""         // another layout
)

// A Volume is a volume with a piece on this disk.
type Volume struct {
	Name   string // name in the database: "Volume1"
	Hint   string // last drive letter: "E:"; empty if none
	Layout Layout // distribution over the pieces
	Size   int64  // size in bytes
	Pieces int    // number of pieces on all disks

	// Whole is the location on this disk if it contains the complete volume, and zero otherwise. Each copy
	// of a mirror is complete.
	Whole Piece
}

// A Piece is a range of a disk in bytes. The zero Piece means that none exists.
type Piece struct{ Off, Len int64 }

// Volumes reads the database of the disk r of size bytes, on which h was found. It returns the volumes
// that have a piece on the disk.
func (h Header) Volumes(r budget.Reader, size int64) ([]Volume, error) {
	at := h.base * sectorSize
	if at >= size {
		return nil, fmt.Errorf("%w: the database of dynamic disks is at %d of %d bytes", errCorrupt, at, size)
	}
	const most = 16 << 10 // blocks and records
	if err := r.Budget().Step(most); err != nil {
		return nil, err
	}
	b := make([]byte, min(DatabaseSize, size-at))
	if _, err := r.ReadAt(b, at); err != nil {
		return nil, err
	}
	records, err := parseDatabase(b)
	if err != nil {
		return nil, fmt.Errorf("database of dynamic disks: %w", err)
	}
	return h.joinVolumes(records), nil
}
