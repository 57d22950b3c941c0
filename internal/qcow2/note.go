package qcow2

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/decamp/decamp/internal/disk/rawfile"
)

// noteText begins a file that is not finished. It is no magic any tool knows, and tells
// whoever looks.
const noteText = "decamp: this qcow2 image is not finished. Resume the run, or delete it.\n\x00"

// noteVersion changes with the layout: a file laid out otherwise cannot be resumed.
const noteVersion = 1

// encodeNote returns the first block of an unfinished file: text, version, disk size and
// CRC-32C of all that.
func encodeNote(size int64) []byte {
	b := make([]byte, rawfile.Align)
	n := copy(b, noteText)
	binary.BigEndian.PutUint32(b[n:], noteVersion)
	binary.BigEndian.PutUint64(b[n+4:], uint64(size))
	binary.BigEndian.PutUint32(b[n+12:], crc32.Checksum(b[:n+12], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// parseNote returns the disk size of an unfinished file.
func parseNote(b []byte) (size int64, ok bool) {
	n := len(noteText)
	if len(b) < n+16 || string(b[:n]) != noteText || binary.BigEndian.Uint32(b[n:]) != noteVersion {
		return 0, false
	}
	sum := crc32.Checksum(b[:n+12], crc32.MakeTable(crc32.Castagnoli))
	return int64(binary.BigEndian.Uint64(b[n+4:])), sum == binary.BigEndian.Uint32(b[n+12:])
}
