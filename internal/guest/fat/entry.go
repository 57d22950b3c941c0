package fat

import (
	"strings"
	"unicode/utf16"
)

// An entry is a file or folder, as its folder has it.
type entry struct {
	name  string
	attr  byte
	first int64 // cluster
	size  int64 // bytes
}

const (
	attrLong  = 0x0f
	lowerBase = 0x08 // flag in byte 12: Windows NT marks short names in lower case with it
	lowerExt  = 0x10
)

// entries reads the lines of a folder: a long name stands before its entry in pieces of
// thirteen characters, the last one first.
func entries(p []byte, yield func(entry) bool) {
	var long longName
	for ; len(p) >= 32 && p[0] != 0; p = p[32:] {
		line := p[:32]
		switch {
		case line[0] == 0xe5: // removed
			long = longName{}
		case line[11]&0x3f == attrLong:
			long.add(line)
		case line[11]&attrVolume != 0:
			long = longName{}
		default:
			e := entry{
				name: long.of(line), attr: line[11],
				first: int64(le16(line, 20))<<16 | int64(le16(line, 26)), size: int64(le32(line, 28)),
			}
			long = longName{}
			if e.name != "." && e.name != ".." && e.name != "" && !yield(e) {
				return
			}
		}
	}
}

// A longName has the parts of a long name read so far.
type longName struct {
	units []uint16
	next  byte // number of the piece that must come
	sum   byte // checksum of its short name
}

// add takes the piece in one line. One out of order begins nothing.
func (l *longName) add(line []byte) {
	const last = 0x40
	number := line[0] &^ last
	switch {
	case line[0]&last != 0 && number >= 1 && number <= 20:
		*l = longName{sum: line[13]}
	case number == 0 || number != l.next || line[13] != l.sum:
		*l = longName{}
		return
	}
	l.next = number - 1
	piece := make([]uint16, 0, 13)
	for _, at := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
		u := le16(line, at)
		if u == 0 {
			break
		}
		piece = append(piece, u)
	}
	l.units = append(piece, l.units...)
}

// of returns the name of the entry in line: the long one if it is complete and belongs to
// it, else the short one.
func (l *longName) of(line []byte) string {
	if len(l.units) > 0 && l.next == 0 && l.sum == checksum(line[:11]) {
		return string(utf16.Decode(l.units))
	}
	base, ext := strings.TrimRight(string(line[:8]), " "), strings.TrimRight(string(line[8:11]), " ")
	if strings.HasPrefix(base, "\x05") { // stands for a letter that would mean removed
		base = "\xe5" + base[1:]
	}
	if line[12]&lowerBase != 0 {
		base = strings.ToLower(base)
	}
	if line[12]&lowerExt != 0 {
		ext = strings.ToLower(ext)
	}
	if ext != "" {
		base += "." + ext
	}
	return strings.ToValidUTF8(base, "?")
}

// checksum is the one that ties a long name to a short one.
func checksum(short []byte) byte {
	var sum byte
	for _, b := range short {
		sum = sum>>1 | sum<<7
		sum += b
	}
	return sum
}
