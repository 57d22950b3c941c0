package ntfs

import (
	"fmt"
	"unicode/utf16"
)

// Types of attributes.
const (
	typeList       = 0x20
	typeVolumeName = 0x60
	typeVolumeInfo = 0x70
	typeData       = 0x80
	typeIndexRoot  = 0x90
	typeIndexAlloc = 0xa0
	typeReparse    = 0xc0
	typeEnd        = 0xffffffff
)

const (
	recordInUse  = 1
	recordFolder = 2
)

// refNumber keeps the record's number of a reference; the rest is its sequence number.
const refNumber = 1<<48 - 1

// A record is one line of the master file table: a file, or a part of one.
type record struct {
	number     int64
	sequence   uint16
	flags      uint16
	attributes []attribute
}

func (r *record) folder() bool { return r.flags&recordFolder != 0 }

// An attribute is the data of a file under a type and a name. Its value is in the record, or in
// clusters.
type attribute struct {
	kind  uint32
	name  string
	flags uint16
	value []byte // value of a resident attribute
	away  []byte // header of an attribute in clusters, with its run list
	first int64  // the first cluster, counted within the value, that away describes
}

// parseRecord undoes the fixups of raw, which it changes, and reads its attributes.
func parseRecord(raw []byte) (*record, error) {
	if string(raw[:4]) != "FILE" {
		return nil, fmt.Errorf("%w: no file record", errCorrupt)
	}
	if err := fixUp(raw); err != nil {
		return nil, err
	}
	r := &record{sequence: le16(raw, 0x10), flags: le16(raw, 0x16)}
	if r.flags&recordInUse == 0 {
		return nil, fmt.Errorf("%w: the record is not in use", errCorrupt)
	}
	used, at := int(le32(raw, 0x18)), int(le16(raw, 0x14))
	if used > len(raw) || at > used {
		return nil, fmt.Errorf("%w: attributes at %d, in %d bytes of %d", errCorrupt, at, used, len(raw))
	}
	var err error
	r.attributes, err = parseAttributes(raw[at:used])
	return r, err
}

// fixUp puts back the last two bytes of every 512, which hold a number that is the same
// everywhere where a write was not torn.
func fixUp(raw []byte) error {
	at, count := int(le16(raw, 4)), int(le16(raw, 6))
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

func parseAttributes(b []byte) ([]attribute, error) {
	var all []attribute
	for len(b) >= 4 && le32(b, 0) != typeEnd {
		if len(b) < 0x18 {
			return nil, fmt.Errorf("%w: an attribute is cut off", errCorrupt)
		}
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

func parseAttribute(b []byte) (attribute, error) {
	a := attribute{kind: le32(b, 0), flags: le16(b, 12)}
	name, err := text(b, int(le16(b, 10)), int(b[9]))
	if err != nil {
		return a, err
	}
	a.name = name
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
	a.away, a.first = b, int64(le64(b, 16))
	return a, nil
}

// text reads count UTF-16 units.
func text(b []byte, at, count int) (string, error) {
	if at+2*count > len(b) {
		return "", fmt.Errorf("%w: a name of %d characters at %d of %d bytes", errCorrupt, count, at, len(b))
	}
	return string(utf16.Decode(units(b[at : at+2*count]))), nil
}

func units(b []byte) []uint16 {
	u := make([]uint16, len(b)/2)
	for i := range u {
		u[i] = le16(b, 2*i)
	}
	return u
}

// first returns the attribute of a type and name that is in this record.
func (r *record) first(kind uint32, name string) (attribute, bool) {
	for _, a := range r.attributes {
		if a.kind == kind && a.name == name {
			return a, true
		}
	}
	return attribute{}, false
}
