package hive

import (
	"fmt"
	"strings"
)

// Type is the type of a value's data, as in the Windows API (REG_SZ is 1).
type Type uint32

// Types with special methods; values of other types are bytes.
const (
	String     Type = 1  // text (REG_SZ)
	Expandable Type = 2  // text with names of environment variables (REG_EXPAND_SZ)
	Binary     Type = 3  // bytes (REG_BINARY)
	Number     Type = 4  // 32 bits, little-endian (REG_DWORD)
	BigEndian  Type = 5  // 32 bits, big-endian
	Strings    Type = 7  // several texts (REG_MULTI_SZ)
	LongNumber Type = 11 // 64 bits, little-endian (REG_QWORD)
)

const (
	inlineData  = 1 << 31      // flag of a length: the data is stored in the field of its offset
	valueLimit  = 20 + 2*16383 // bytes of a value's cell that are read: header and longest name
	blockData   = 16344        // bytes of each piece of a value with several pieces
	latin1Value = 1            // flag of a value whose name is Latin-1 instead of UTF-16
)

// A Value is a value of a key.
type Value struct {
	Name string // name; empty for the key's default value
	Type Type   // type of the data
	Data []byte // data as stored in the hive, at most MaxValue bytes
}

// Value returns the value of a name, compared without regard to case. The error is ErrNotFound if it
// does not exist.
func (k *Key) Value(name string) (Value, error) {
	var found Value
	none := true
	err := k.eachValue(func(has string, b []byte) (bool, error) {
		if !strings.EqualFold(has, name) {
			return false, nil
		}
		var err error
		none = false
		found, err = k.h.parseValue(has, b)
		return true, err
	})
	if err == nil && none {
		err = ErrNotFound
	}
	if err != nil {
		return Value{}, fmt.Errorf("value %s of %s: %w", name, k.Name, err)
	}
	return found, nil
}

// eachValue calls f with the name and the cell of each value, until f returns true or an error.
func (k *Key) eachValue(f func(name string, b []byte) (done bool, err error)) error {
	if k.values == 0 || k.valueList == noCell {
		return nil
	}
	if k.values > maxKeys {
		return fmt.Errorf("%w: %d values of a key", errCorrupt, k.values)
	}
	list, err := k.h.readCell(k.valueList, 4*int(k.values))
	if err != nil {
		return err
	}
	for i := 0; i < int(k.values); i++ {
		if 4*i+4 > len(list) {
			return fmt.Errorf("%w: a list of %d values in %d bytes", errCorrupt, k.values, len(list))
		}
		b, err := k.h.readMarkedCell(le32(list, 4*i), "vk", 20, valueLimit)
		if err != nil {
			return err
		}
		has, err := decodeName(b[20:], int(le16(b, 2)), le16(b, 16)&latin1Value != 0)
		if err != nil {
			return err
		}
		if done, err := f(has, b); done || err != nil {
			return err
		}
	}
	return nil
}

// parseValue parses the cell of a value and reads its data. It fails if the data exceeds MaxValue.
func (h *Hive) parseValue(name string, b []byte) (Value, error) {
	// Offsets in a value's cell: 2 length of the name, 4 length of the data, 8 its cell, 12 type.
	v := Value{Name: name, Type: Type(le32(b, 12))}
	length, at := le32(b, 4), le32(b, 8)
	// Data of at most four bytes replaces the offset.
	if length&inlineData != 0 {
		if length &^= inlineData; length > 4 {
			return v, fmt.Errorf("%w: %d bytes in place of an offset", errCorrupt, length)
		}
		v.Data = b[8 : 8+length]
		return v, nil
	}
	if length > MaxValue {
		return v, fmt.Errorf("a value of %d bytes, %d are read at most", length, MaxValue)
	}
	if length == 0 {
		return v, nil
	}
	var err error
	v.Data, err = h.readData(at, int(length))
	return v, err
}

// readData reads the data of a value from the cell at offset at. A cell that begins with "db" lists
// several pieces; hives before Windows XP do not have them.
func (h *Hive) readData(at uint32, length int) ([]byte, error) {
	b, err := h.readCell(at, length)
	if err != nil {
		return nil, err
	}
	if length > blockData && len(b) >= 8 && len(b) < length && string(b[:2]) == "db" {
		return h.readPieces(le32(b, 4), int(le16(b, 2)), length)
	}
	if len(b) < length {
		return nil, fmt.Errorf("%w: %d bytes of a value in a cell of %d", errCorrupt, length, len(b))
	}
	return b, nil
}

// readPieces joins the pieces of a value. at is the offset of the list of count pieces.
func (h *Hive) readPieces(at uint32, count, length int) ([]byte, error) {
	list, err := h.readCell(at, 4*count)
	if err != nil {
		return nil, err
	}
	if len(list) < 4*count || count < (length+blockData-1)/blockData {
		return nil, fmt.Errorf("%w: %d bytes of a value in %d pieces", errCorrupt, length, count)
	}
	// length is at most MaxValue here.
	data := make([]byte, 0, length)
	for i := 0; len(data) < length; i++ {
		want := min(blockData, length-len(data))
		piece, err := h.readCell(le32(list, 4*i), want)
		if err != nil {
			return nil, err
		}
		if len(piece) < want {
			return nil, fmt.Errorf("%w: a piece of %d bytes, where %d belong", errCorrupt, len(piece), want)
		}
		data = append(data, piece...)
	}
	return data, nil
}

// Text returns the text up to the first zero character. It is empty for numbers and bytes. Of a value
// of the type Strings it returns the first text.
func (v Value) Text() string {
	if v.Type != String && v.Type != Expandable && v.Type != Strings {
		return ""
	}
	s, _, _ := strings.Cut(utf16Text(v.Data), "\x00")
	return s
}

// Texts returns all texts of a value of the type Strings. Other texts are returned as one element; the
// result is nil if there is no text.
func (v Value) Texts() []string {
	if v.Type != Strings {
		if s := v.Text(); s != "" {
			return []string{s}
		}
		return nil
	}
	var all []string
	for s := range strings.SplitSeq(utf16Text(v.Data), "\x00") {
		if s == "" {
			break
		}
		all = append(all, s)
	}
	return all
}

// Number returns the value as a number. ok is false if the type is not numeric or the length is wrong.
func (v Value) Number() (n uint64, ok bool) {
	switch {
	case v.Type == Number && len(v.Data) == 4:
		return uint64(le32(v.Data, 0)), true
	case v.Type == LongNumber && len(v.Data) == 8:
		return uint64(le32(v.Data, 0)) | uint64(le32(v.Data, 4))<<32, true
	case v.Type == BigEndian && len(v.Data) == 4:
		d := v.Data
		return uint64(d[0])<<24 | uint64(d[1])<<16 | uint64(d[2])<<8 | uint64(d[3]), true
	}
	return 0, false
}
