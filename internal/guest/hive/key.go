package hive

import (
	"fmt"
	"strings"
	"unicode/utf16"
)

const (
	keyLimit  = 76 + 2*255 // bytes of a key's cell that are looked at
	listLimit = 4 + 8<<16  // bytes of a list's cell
	maxKeys   = 1 << 15    // keys of one key, values of one key
	asLatin1  = 0x20       // the flag of a key whose name has one byte for a character
)

// A Key is a key of a hive.
type Key struct {
	Name string

	h          *Hive
	subkeys    uint32 // how many
	subkeyList uint32
	values     uint32
	valueList  uint32
}

// Key returns the key at path, whose names are separated by backslashes and start below the root. Names
// are compared without regard to case. The error is ErrNotFound if the key does not exist.
func (h *Hive) Key(path string) (*Key, error) {
	k, err := h.key(h.root)
	if err != nil {
		return nil, fmt.Errorf("root of the hive: %w", err)
	}
	for name := range strings.SplitSeq(path, `\`) {
		if name == "" {
			continue
		}
		if k, err = k.subkey(name); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return k, nil
}

// Subkeys returns the keys below k, in order.
func (k *Key) Subkeys() ([]*Key, error) {
	var all []*Key
	err := k.each(func(at, _ uint32, _ bool) (bool, error) {
		sub, err := k.h.key(at)
		all = append(all, sub)
		return false, err
	})
	if err != nil {
		return nil, fmt.Errorf("keys below %s: %w", k.Name, err)
	}
	return all, nil
}

// Key returns the key at path below k.
func (k *Key) Key(path string) (*Key, error) {
	sub := k
	for name := range strings.SplitSeq(path, `\`) {
		var err error
		if sub, err = sub.subkey(name); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return sub, nil
}

// key reads the key in the cell at an offset.
func (h *Hive) key(at uint32) (*Key, error) {
	b, err := h.marked(at, "nk", 76, keyLimit)
	if err != nil {
		return nil, err
	}
	k := &Key{h: h, subkeys: le32(b, 20), subkeyList: le32(b, 28), values: le32(b, 36), valueList: le32(b, 40)}
	k.Name, err = name(b[76:], int(le16(b, 72)), le16(b, 2)&asLatin1 != 0)
	return k, err
}

// name reads a name of so many bytes.
func name(b []byte, length int, latin1 bool) (string, error) {
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

func utf16Text(b []byte) string {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = le16(b, 2*i)
	}
	return string(utf16.Decode(units))
}

// subkey returns the key of a name right below k.
func (k *Key) subkey(name string) (found *Key, err error) {
	want, ascii := hash(name)
	err = k.each(func(at, has uint32, hashed bool) (bool, error) {
		if hashed && ascii && has != want {
			return false, nil
		}
		sub, err := k.h.key(at)
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

// hash returns the hash of a name in lists of the kind lh. Windows defines upper case beyond ASCII;
// ascii reports that the name does not depend on it.
func hash(name string) (sum uint32, ascii bool) {
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

// each calls f for each key below k with the offset of its cell and, where hashed, the hash of its
// name, until f returns true.
func (k *Key) each(f func(at, hash uint32, hashed bool) (done bool, err error)) error {
	if k.subkeys == 0 || k.subkeyList == noCell {
		return nil
	}
	if k.subkeys > maxKeys {
		return fmt.Errorf("%w: %d keys below a key", errCorrupt, k.subkeys)
	}
	b, err := k.h.cell(k.subkeyList, listLimit)
	if err != nil {
		return err
	}
	if len(b) < 4 || string(b[:2]) != "ri" {
		_, err := eachOf(b, f)
		return err
	}
	lists, err := offsets(b, 4)
	for _, at := range lists {
		leaf, err := k.h.cell(at, listLimit)
		if err != nil {
			return err
		}
		if done, err := eachOf(leaf, f); done || err != nil {
			return err
		}
	}
	return err
}

// eachOf calls f for each line of one list. Those of lf and lh have a second word; in lf
// that is the beginning of the name.
func eachOf(b []byte, f func(at, hash uint32, hashed bool) (bool, error)) (bool, error) {
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
	lines, err := offsets(b, width)
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

// offsets returns the first word of each line of a list.
func offsets(b []byte, width int) ([]uint32, error) {
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
