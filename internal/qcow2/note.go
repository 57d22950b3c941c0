package qcow2

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/decamp/decamp/internal/disk/rawfile"
)

// noteText begins an unfinished file. It is no magic number of any format, and informs users who open
// the file.
const noteText = "decamp: this qcow2 image is not finished. Resume the run, or delete it.\n\x00"

// A note of version 1 describes a file with the layout of newLayout, one of version 2 a disk that was
// smaller once: it also contains the start of the data. A file with another layout cannot be resumed.
const (
	noteVersion      = 1 // the file has the layout of newLayout
	noteVersionMoved = 2 // the disk was smaller once; the note contains the offset of the data
)

// encodeNote returns the first block of an unfinished file: text, version, disk size, the offset of the
// data in version 2, and CRC-32C of all of that.
func encodeNote(l layout) []byte {
	b := append(make([]byte, 0, rawfile.Align), noteText...)
	if fresh, err := newLayout(l.size); err == nil && fresh == l {
		b = binary.BigEndian.AppendUint32(b, noteVersion)
		b = binary.BigEndian.AppendUint64(b, uint64(l.size))
	} else {
		b = binary.BigEndian.AppendUint32(b, noteVersionMoved)
		b = binary.BigEndian.AppendUint64(b, uint64(l.size))
		b = binary.BigEndian.AppendUint64(b, uint64(l.data.Off))
	}
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return b[:rawfile.Align]
}

// castagnoli is the table of CRC-32C, the checksum of iSCSI (RFC 3720, section 12.1).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// parseNote returns the layout of an unfinished file. b is its first block. ok is false if b is not a
// valid note.
func parseNote(b []byte) (l layout, ok bool) {
	text, rest := len(noteText), 0
	if len(b) < text+24 || string(b[:text]) != noteText {
		return l, false
	}
	switch binary.BigEndian.Uint32(b[text:]) {
	case noteVersion:
		rest = text + 12
	case noteVersionMoved:
		rest = text + 20
	default:
		return l, false
	}
	if binary.BigEndian.Uint32(b[rest:]) != crc32.Checksum(b[:rest], castagnoli) {
		return l, false
	}
	size := int64(binary.BigEndian.Uint64(b[text+4:]))
	l, err := newLayout(size)
	if err == nil && rest == text+20 {
		data := int64(binary.BigEndian.Uint64(b[text+12:]))
		if data == 0 || data == l.data.Off {
			return l, false // version 1 would have done
		}
		l, err = layoutAt(size, data)
	}
	return l, err == nil
}
