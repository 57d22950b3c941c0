package fat

import (
	"encoding/binary"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

const (
	lineLen = 32   // bytes of an entry in a folder
	removed = 0xe5 // first byte of a deleted entry
)

// shortName returns a name in the form of an entry: eight and three upper case characters, padded
// with spaces. It fails if the name needs a long name.
func shortName(name string) (out [11]byte, err error) {
	base, ext, _ := strings.Cut(strings.ToUpper(name), ".")
	if base == "" || len(base) > 8 || len(ext) > 3 || strings.Trim(base+ext, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		return out, fault.New(fault.Unsupported, "%q is not a short name (8.3)", name).WithHint("report this: decamp only creates files with short names")
	}
	copy(out[:], base+strings.Repeat(" ", 8-len(base))+ext+strings.Repeat(" ", 3-len(ext)))
	return out, nil
}

// makeLine returns the entry for a file or folder of size bytes that begins at cluster first. All
// times are the Writer's time in UTC.
func (w *Writer) makeLine(name [11]byte, attr byte, first, size int64) []byte {
	p := make([]byte, lineLen)
	copy(p, name[:])
	p[11] = attr
	t := w.now.UTC()
	date := uint16(max(0, t.Year()-1980)<<9 | int(t.Month())<<5 | t.Day())
	clock := uint16(t.Hour()<<11 | t.Minute()<<5 | t.Second()/2)
	for at, v := range map[int]uint16{14: clock, 16: date, 18: date, 22: clock, 24: date, 20: uint16(first >> 16), 26: uint16(first)} {
		binary.LittleEndian.PutUint16(p[at:], v)
	}
	put32(p, 28, uint32(size))
	return p
}

// setTableEntry changes the entry of cluster n in memory. Flush writes the table.
func (fs *FS) setTableEntry(n, v int64) {
	at := int(n * int64(fs.bits) / 8)
	switch fs.bits {
	case 12:
		shift := n & 1 * 4
		old := int64(le16(fs.table, at)) &^ (0xfff << shift)
		binary.LittleEndian.PutUint16(fs.table[at:], uint16(old|v&0xfff<<shift))
	case 16:
		binary.LittleEndian.PutUint16(fs.table[at:], uint16(v))
	default: // the upper four bits are reserved
		put32(fs.table, at, le32(fs.table, at)&^0xfffffff|uint32(v)&0xfffffff)
	}
}

// put32 writes v as a little-endian number at offset at of p.
func put32(p []byte, at int, v uint32) { binary.LittleEndian.PutUint32(p[at:], v) }
