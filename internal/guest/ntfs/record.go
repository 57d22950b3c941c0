package ntfs

import (
	"fmt"
	"unicode/utf16"
)

// Types of attributes.
const (
	typeList       = 0x20       // $ATTRIBUTE_LIST: records that contain parts of the file's attributes
	typeVolumeName = 0x60       // $VOLUME_NAME
	typeVolumeInfo = 0x70       // $VOLUME_INFORMATION
	typeData       = 0x80       // $DATA
	typeIndexRoot  = 0x90       // $INDEX_ROOT: root of a folder's tree
	typeIndexAlloc = 0xa0       // $INDEX_ALLOCATION: other blocks of the tree
	typeReparse    = 0xc0       // $REPARSE_POINT
	typeEnd        = 0xffffffff // end of a record's attributes
)

const (
	recordInUse  = 1 // flag of a record that belongs to a file
	recordFolder = 2 // flag of a folder's record
)

// refNumber is the mask of the record number in a reference; the upper 16 bits are its sequence number.
const refNumber = 1<<48 - 1

// A record is one entry of the master file table: a file or a part of its attributes.
type record struct {
	number     int64       // index in the master file table; zero until readRecord sets it
	sequence   uint16      // counter of the files that have used this record
	flags      uint16      // recordInUse and recordFolder
	attributes []attribute // attributes in the order of the record
}

// isFolder reports whether the record has an index of names.
func (r *record) isFolder() bool { return r.flags&recordFolder != 0 }

// An attribute is a value of a file with a type and a name. A resident value is in the record; others
// are in clusters.
type attribute struct {
	kind     uint32 // type of the attribute
	name     string // name; empty for most attributes
	flags    uint16 // flagCompressed and flagEncrypted
	value    []byte // value of a resident attribute, within the record's memory
	header   []byte // header of an attribute in clusters, with its run list; nil if resident
	firstVCN int64  // first cluster that the header's run list describes, counted within the value
}

// mappingPairs returns the run list of an attribute in clusters; it is empty for a resident attribute.
func (a attribute) mappingPairs() ([]byte, error) {
	if a.header == nil {
		return nil, nil
	}
	// Offset 0x20 is the position of the run list in the attribute.
	at := int(le16(a.header, 0x20))
	if at > len(a.header) {
		return nil, fmt.Errorf("%w: runs at %d of %d bytes", errCorrupt, at, len(a.header))
	}
	return a.header[at:], nil
}

// parseRecord parses a record. It applies the fixups to raw and keeps references to it. It fails if
// the record is not in use.
func parseRecord(raw []byte) (*record, error) {
	if string(raw[:4]) != "FILE" {
		return nil, fmt.Errorf("%w: no file record", errCorrupt)
	}
	if err := applyFixups(raw); err != nil {
		return nil, err
	}
	r := &record{sequence: le16(raw, 0x10), flags: le16(raw, 0x16)}
	if r.flags&recordInUse == 0 {
		return nil, fmt.Errorf("%w: the record is not in use", errCorrupt)
	}
	// Offset 0x14 is the first attribute, 0x18 the end of the used bytes.
	used, at := int(le32(raw, 0x18)), int(le16(raw, 0x14))
	if used > len(raw) || at > used {
		return nil, fmt.Errorf("%w: attributes at %d, in %d bytes of %d", errCorrupt, at, used, len(raw))
	}
	var err error
	r.attributes, err = parseAttributes(raw[at:used])
	return r, err
}

// applyFixups restores the last two bytes of each 512-byte block of raw. On disk they contain a number
// that is the same in all blocks; different numbers mean a torn write and are an error.
func applyFixups(raw []byte) error {
	// Offset 4 is the position of the fixup array; 6 is its length, the number itself included.
	at, count := int(le16(raw, 4)), int(le16(raw, 6))
	// The array must end before the last two bytes of the first block.
	if count != len(raw)/512+1 || at+2*count > 510 {
		return fmt.Errorf("%w: %d fixups at %d for %d bytes", errCorrupt, count, at, len(raw))
	}
	for i := 1; i < count; i++ {
		end := raw[512*i-2 : 512*i]
		if [2]byte(end) != [2]byte(raw[at:]) {
			return fmt.Errorf("%w: the write of a record was torn", errCorrupt)
		}
		copy(end, raw[at+2*i:at+2*i+2])
	}
	return nil
}

// parseAttributes parses the attributes up to typeEnd. They refer to the memory of b.
func parseAttributes(b []byte) ([]attribute, error) {
	var all []attribute
	for len(b) >= 4 && le32(b, 0) != typeEnd {
		if len(b) < 0x18 {
			return nil, fmt.Errorf("%w: an attribute is cut off", errCorrupt)
		}
		// Each attribute has its type and its length, header included.
		length := int64(le32(b, 4))
		if length < 0x18 || length > int64(len(b)) {
			return nil, fmt.Errorf("%w: an attribute of %d bytes, where %d are left", errCorrupt, length, len(b))
		}
		a, err := parseAttribute(b[:length])
		if err != nil {
			return nil, err
		}
		all, b = append(all, a), b[length:]
	}
	return all, nil
}

// parseAttribute parses the header of one attribute, and the value if it is resident.
func parseAttribute(b []byte) (attribute, error) {
	a := attribute{kind: le32(b, 0), flags: le16(b, 12)}
	name, err := utf16Text(b, int(le16(b, 10)), int(b[9]))
	if err != nil {
		return a, err
	}
	a.name = name
	// Offset 8 is zero for a resident attribute; 16 and 20 are length and offset of its value.
	if b[8] == 0 {
		length, at := int64(le32(b, 16)), int64(le16(b, 20))
		if at+length > int64(len(b)) {
			return a, fmt.Errorf("%w: a value of %d bytes at %d of %d", errCorrupt, length, at, len(b))
		}
		a.value = b[at : at+length]
		return a, nil
	}
	if len(b) < 0x40 {
		return a, fmt.Errorf("%w: an attribute in clusters of %d bytes", errCorrupt, len(b))
	}
	// Offset 16 is the lowest VCN that the run list of this part describes.
	a.header, a.firstVCN = b, int64(le64(b, 16))
	return a, nil
}

// utf16Text decodes count UTF-16 units at offset at of b.
func utf16Text(b []byte, at, count int) (string, error) {
	if at+2*count > len(b) {
		return "", fmt.Errorf("%w: a name of %d characters at %d of %d bytes", errCorrupt, count, at, len(b))
	}
	return string(utf16.Decode(utf16Units(b[at : at+2*count]))), nil
}

// utf16Units converts little-endian bytes to UTF-16 units; an odd last byte is ignored.
func utf16Units(b []byte) []uint16 {
	u := make([]uint16, len(b)/2)
	for i := range u {
		u[i] = le16(b, 2*i)
	}
	return u
}

// findAttribute returns the first attribute in this record with a type and name. Parts in other records
// require findParts.
func (r *record) findAttribute(kind uint32, name string) (attribute, bool) {
	for _, a := range r.attributes {
		if a.kind == kind && a.name == name {
			return a, true
		}
	}
	return attribute{}, false
}
