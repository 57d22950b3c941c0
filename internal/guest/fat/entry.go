package fat

import (
	"strings"
	"unicode/utf16"
)

// A dirEntry is a file or folder according to its parent folder.
type dirEntry struct {
	name  string // long name, or the short name of a file without one
	attr  byte   // attrVolume, attrFolder and other attributes
	first int64  // first cluster; 0 for an empty file
	size  int64  // bytes; 0 for folders
}

const (
	attrLong  = 0x0f // attributes that mark a piece of a long name
	lowerBase = 0x08 // flag in byte 12: Windows NT displays the base of the short name in lower case
	lowerExt  = 0x10 // flag in byte 12: the same for the extension
)

// eachEntry calls yield for each file and folder in the bytes of a folder, until yield returns
// false. It omits the volume label, "." and "..". A long name precedes its entry in pieces of
// thirteen characters, the last piece first.
func eachEntry(p []byte, yield func(dirEntry) bool) {
	var long longName
	for ; len(p) >= 32 && p[0] != 0; p = p[32:] {
		line := p[:32]
		switch {
		case line[0] == 0xe5: // removed
			long = longName{}
		case line[11]&0x3f == attrLong:
			long.addPiece(line)
		case line[11]&attrVolume != 0:
			long = longName{}
		default:
			e := dirEntry{
				name: long.nameOf(line), attr: line[11],
				first: int64(le16(line, 20))<<16 | int64(le16(line, 26)), size: int64(le32(line, 28)),
			}
			long = longName{}
			if e.name != "." && e.name != ".." && e.name != "" && !yield(e) {
				return
			}
		}
	}
}

// A longName collects the pieces of a long name. The zero longName has none.
type longName struct {
	units []uint16 // UTF-16 units of the pieces so far
	next  byte     // number of the expected piece; 0 if the name is complete
	sum   byte     // checksum of the short name that the long name belongs to
}

// addPiece adds the piece in a line. A piece out of order discards the name.
func (l *longName) addPiece(line []byte) {
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
	// The thirteen units of a piece surround its attributes, checksum and cluster.
	for _, at := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
		u := le16(line, at)
		if u == 0 {
			break
		}
		piece = append(piece, u)
	}
	l.units = append(piece, l.units...)
}

// nameOf returns the name of the entry in line: the long name if it is complete and has the
// checksum of the short name, otherwise the short name.
func (l *longName) nameOf(line []byte) string {
	if len(l.units) > 0 && l.next == 0 && l.sum == shortChecksum(line[:11]) {
		return string(utf16.Decode(l.units))
	}
	base, ext := strings.TrimRight(string(line[:8]), " "), strings.TrimRight(string(line[8:11]), " ")
	if strings.HasPrefix(base, "\x05") { // 0x05 replaces a first byte of 0xe5, which would mark a deleted entry
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

// shortChecksum returns the checksum of a short name that each piece of its long name contains.
func shortChecksum(short []byte) byte {
	var sum byte
	for _, b := range short {
		sum = sum>>1 | sum<<7
		sum += b
	}
	return sum
}
