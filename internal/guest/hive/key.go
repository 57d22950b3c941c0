package hive

import (
	"fmt"
	"strings"
	"unicode/utf16"
)

const (
	keyLimit  = 76 + 2*255 // bytes of a key's cell that are read: header and longest name
	listLimit = 4 + 8<<16  // bytes of a list's cell that are read
	maxKeys   = 1 << 15    // subkeys of one key, and values of one key
	asLatin1  = 0x20       // flag of a key whose name is Latin-1 instead of UTF-16
)

// A Key is a key of a hive. It is valid as long as the hive's file is open.
type Key struct {
	Name string // name without its path

	h          *Hive  // hive that contains the key
	subkeys    uint32 // number of subkeys
	subkeyList uint32 // offset of the list of subkeys; noCell if none exists
	values     uint32 // number of values
	valueList  uint32 // offset of the list of values; noCell if none exists
}

// Key returns the key at path below the root. Backslashes separate the names, which are compared
// without regard to case. The error is ErrNotFound if the key does not exist.
func (h *Hive) Key(path string) (*Key, error) {
	k, err := h.readKey(h.root)
	if err != nil {
		return nil, fmt.Errorf("root of the hive: %w", err)
	}
	for name := range strings.SplitSeq(path, `\`) {
		if name == "" {
			continue
		}
		if k, err = k.findSubkey(name); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return k, nil
}

// keyMemory is the charge for a key in memory without its name, in bytes.
const keyMemory = 96

// Subkeys returns the direct subkeys of k in the order of the hive, which sorts them by name. Their memory
// is charged until the examination ends.
func (k *Key) Subkeys() ([]*Key, error) {
	var all []*Key
	err := k.eachSubkey(func(at, _ uint32, _ bool) (bool, error) {
		sub, err := k.h.readKey(at)
		if err == nil {
			err = k.h.budget.Hold(keyMemory + int64(len(sub.Name)))
		}
		all = append(all, sub)
		return false, err
	})
	if err != nil {
		return nil, fmt.Errorf("keys below %s: %w", k.Name, err)
	}
	return all, nil
}

// Key returns the key at path below k. The error is ErrNotFound if the key does not exist.
func (k *Key) Key(path string) (*Key, error) {
	sub := k
	for name := range strings.SplitSeq(path, `\`) {
		var err error
		if sub, err = sub.findSubkey(name); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return sub, nil
}

// readKey reads the key in the cell at offset at.
func (h *Hive) readKey(at uint32) (*Key, error) {
	b, err := h.readMarkedCell(at, "nk", 76, keyLimit)
	if err != nil {
		return nil, err
	}
	// Offsets in a key's cell: 20 subkeys, 28 their list, 36 values, 40 their list, 72 length of the name.
	k := &Key{h: h, subkeys: le32(b, 20), subkeyList: le32(b, 28), values: le32(b, 36), valueList: le32(b, 40)}
	k.Name, err = decodeName(b[76:], int(le16(b, 72)), le16(b, 2)&asLatin1 != 0)
	return k, err
}

// decodeName decodes a name of length bytes in Latin-1 or UTF-16.
func decodeName(b []byte, length int, latin1 bool) (string, error) {
	if length > len(b) {
		return "", fmt.Errorf("%w: a name of %d bytes, where %d are left", errCorrupt, length, len(b))
	}
	if !latin1 {
		return utf16Text(b[:length]), nil
	}
	letters := make([]rune, length)
	for i := range letters {
		letters[i] = rune(b[i])
	}
	return string(letters), nil
}

// utf16Text decodes little-endian UTF-16; invalid units become replacement characters.
func utf16Text(b []byte) string {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = le16(b, 2*i)
	}
	return string(utf16.Decode(units))
}

// findSubkey returns the direct subkey of a name. It compares hashes first, if the list has them
// and the name is ASCII, and so reads few cells.
func (k *Key) findSubkey(name string) (found *Key, err error) {
	want, ascii := hashName(name)
	err = k.eachSubkey(func(at, has uint32, hashed bool) (bool, error) {
		if hashed && ascii && has != want {
			return false, nil
		}
		sub, err := k.h.readKey(at)
		if err == nil && strings.EqualFold(sub.Name, name) {
			found = sub
		}
		return found != nil, err
	})
	if err == nil && found == nil {
		err = ErrNotFound
	}
	return found, err
}

// hashName returns the hash of a name in lists of the kind lh. It is computed over upper case letters;
// Windows defines those beyond ASCII, so ascii is false if the name has any.
func hashName(name string) (sum uint32, ascii bool) {
	for _, c := range []byte(name) {
		if c >= 0x80 {
			return 0, false
		}
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		sum = sum*37 + uint32(c)
	}
	return sum, true
}

// eachSubkey calls f for each direct subkey with the offset of its cell, until f returns true or an
// error. hash is the hash of the name if hashed is true. A list of the kind ri refers to other
// lists.
func (k *Key) eachSubkey(f func(at, hash uint32, hashed bool) (done bool, err error)) error {
	if k.subkeys == 0 || k.subkeyList == noCell {
		return nil
	}
	if k.subkeys > maxKeys {
		return fmt.Errorf("%w: %d keys below a key", errCorrupt, k.subkeys)
	}
	b, err := k.h.readCell(k.subkeyList, listLimit)
	if err != nil {
		return err
	}
	if len(b) < 4 || string(b[:2]) != "ri" {
		_, err := eachInList(b, f)
		return err
	}
	lists, err := listOffsets(b, 4)
	for _, at := range lists {
		leaf, err := k.h.readCell(at, listLimit)
		if err != nil {
			return err
		}
		if done, err := eachInList(leaf, f); done || err != nil {
			return err
		}
	}
	return err
}

// eachInList calls f for each entry of one list of the kind li, lf or lh. Entries of lf and lh have a
// second word; only in lh it is a hash of the whole name.
func eachInList(b []byte, f func(at, hash uint32, hashed bool) (bool, error)) (bool, error) {
	kind, width := "", 4
	if len(b) >= 4 {
		kind = string(b[:2])
	}
	switch kind {
	case "lf", "lh":
		width = 8
	case "li":
	default:
		return false, fmt.Errorf("%w: a list of keys of the kind %q", errCorrupt, kind)
	}
	lines, err := listOffsets(b, width)
	if err != nil {
		return false, err
	}
	for i, at := range lines {
		word := uint32(0)
		if kind == "lh" {
			word = le32(b, 4+8*i+4)
		}
		if done, err := f(at, word, kind == "lh"); done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// listOffsets returns the first word of each entry, which is the offset of a cell. width is the size of
// an entry in bytes.
func listOffsets(b []byte, width int) ([]uint32, error) {
	count := int(le16(b, 2))
	if 4+count*width > len(b) {
		return nil, fmt.Errorf("%w: a list of %d lines in %d bytes", errCorrupt, count, len(b))
	}
	all := make([]uint32, count)
	for i := range all {
		all[i] = le32(b, 4+i*width)
	}
	return all, nil
}
