// Package ldm reads the database of Windows' dynamic disks: the volumes, and the positions of their pieces
// on the disks.
//
// Each disk of a group has the whole group's database, 1 MiB at most. A private header has its position and
// the disk's ID. Volumes consist of components, one for each mirror, and components of partitions, which are
// runs of sectors of one disk.
//
// That 1 MiB bounds all work: it is read at once, and references outside of it are errors.
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

// DatabaseSize bounds the database, in bytes; Windows has it fill as much.
const DatabaseSize = 1 << 20

const sectorSize = 512

var errCorrupt = errors.New("corrupt")

// A Header is a private header: a disk's description of itself.
type Header struct {
	Group string // the name of the disk group
	disk  string // its GUID
	data  int64  // the sector that partitions count from
	base  int64  // the database, in sectors
}

// Find returns the first private header among the sectors of [off, off+length).
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

func parseHeader(b []byte) (Header, bool) {
	if !bytes.HasPrefix(b, []byte("PRIVHEAD")) || binary.BigEndian.Uint16(b[0xc:]) != 2 {
		return Header{}, false
	}
	h := Header{Group: padded(b[0xf0:0x110]), disk: padded(b[0x30:0x70])}
	data, base := binary.BigEndian.Uint64(b[0x11b:]), binary.BigEndian.Uint64(b[0x12b:])
	h.data, h.base = int64(data), int64(base)
	const most = 1 << 50
	return h, data < most && base < most
}

// padded reads text that zeros follow.
func padded(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return strings.ToValidUTF8(string(text), "?")
}

// Layout is the way a volume's bytes are spread.
type Layout string

// The layouts of Windows.
const (
	Simple   Layout = "simple"
	Spanned  Layout = "spanned"
	Striped  Layout = "striped"
	Mirrored Layout = "mirrored"
	RAID5    Layout = "raid5"
	Unknown  Layout = ""
)

// A Volume is one of those that have a piece on this disk.
type Volume struct {
	Name   string
	Hint   string // the drive letter it had: "E:"
	Layout Layout
	Size   int64 // bytes
	Pieces int   // on all disks

	// Whole is where on this disk all of the volume is, nowhere if it is not on this disk
	// alone. A mirror is a whole volume.
	Whole Piece
}

// A Piece is a row of bytes of a disk. One of no bytes is nowhere.
type Piece struct{ Off, Len int64 }

// Volumes reads the database of the disk that h was found on, and returns the volumes that
// have a piece on it.
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
	return h.join(records), nil
}
