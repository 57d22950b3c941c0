package convert

import (
	"encoding/binary"
	"maps"
	"slices"
)

// A depIndex is a trie of module names, as modprobe reads it from modules.dep.bin. The
// format is that of kmod, libkmod/libkmod-index.c: big-endian numbers, and nodes of
//
//	prefix, ending in 0                                  if bit 31 of what points here is set
//	first and last character, and a pointer for each     if bit 29
//	count; for each a priority and a text ending in 0    if bit 30
//
// The lower 28 bits of a pointer are where the node is in the file; 0 is no node.
type depIndex struct {
	children map[byte]*depIndex
	value    string
}

const (
	indexMagic   = 0xb007f457
	indexVersion = 0x00020001

	nodeChildren = 0x20000000
	nodeValue    = 0x40000000
)

// add gives a name its value.
func (x *depIndex) add(name, value string) {
	for _, c := range []byte(name) {
		if x.children == nil {
			x.children = map[byte]*depIndex{}
		}
		if x.children[c] == nil {
			x.children[c] = &depIndex{}
		}
		x = x.children[c]
	}
	x.value = value
}

// bytes returns the file.
func (x *depIndex) bytes() []byte {
	out := binary.BigEndian.AppendUint32(nil, indexMagic)
	out = binary.BigEndian.AppendUint32(out, indexVersion)
	out = append(out, 0, 0, 0, 0)
	out, root := x.append(out)
	binary.BigEndian.PutUint32(out[8:], root)
	return out
}

// append writes the nodes below x, then x, and returns the pointer to it.
func (x *depIndex) append(out []byte) ([]byte, uint32) {
	pointers := map[byte]uint32{}
	keys := slices.Sorted(maps.Keys(x.children))
	for _, c := range keys {
		out, pointers[c] = x.children[c].append(out)
	}
	at := uint32(len(out))
	if len(keys) > 0 {
		at |= nodeChildren
		first, last := keys[0], keys[len(keys)-1]
		out = append(out, first, last)
		for c := int(first); c <= int(last); c++ {
			out = binary.BigEndian.AppendUint32(out, pointers[byte(c)])
		}
	}
	if x.value != "" {
		at |= nodeValue
		out = append(out, 0, 0, 0, 1, 0, 0, 0, 0) // one value, of priority 0
		out = append(append(out, x.value...), 0)
	}
	return out, at
}
