package convert

import (
	"encoding/binary"
	"maps"
	"slices"
)

// A depIndex is a trie of module names in the form of modules.dep.bin, which modprobe reads. The
// format is that of kmod, libkmod/libkmod-index.c: big-endian numbers, and nodes of
//
//	prefix, ending in 0                                  if bit 31 of the pointer is set
//	first and last character, and a pointer for each     if bit 29
//	count; for each a priority and a text ending in 0    if bit 30
//
// The lower 28 bits of a pointer are the offset of the node in the file; 0 means no node.
type depIndex struct {
	children map[byte]*depIndex // subtrees by the next byte of the name
	value    string             // value of the name that ends here; empty if none does
}

const (
	indexMagic   = 0xb007f457 // first word of the file
	indexVersion = 0x00020001 // version 2.1 of the format

	nodeChildren = 0x20000000 // flag in a pointer: the node has children
	nodeValue    = 0x40000000 // flag in a pointer: the node has a value
)

// addName sets the value of a name.
func (x *depIndex) addName(name, value string) {
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

// encode returns the content of the file.
func (x *depIndex) encode() []byte {
	out := binary.BigEndian.AppendUint32(nil, indexMagic)
	out = binary.BigEndian.AppendUint32(out, indexVersion)
	// The pointer to the root is set at the end, when its position is known.
	out = append(out, 0, 0, 0, 0)
	out, root := x.appendNodes(out)
	binary.BigEndian.PutUint32(out[8:], root)
	return out
}

// appendNodes appends the nodes below x, then x, to out and returns the pointer to x.
func (x *depIndex) appendNodes(out []byte) ([]byte, uint32) {
	pointers := map[byte]uint32{}
	keys := slices.Sorted(maps.Keys(x.children))
	for _, c := range keys {
		out, pointers[c] = x.children[c].appendNodes(out)
	}
	at := uint32(len(out))
	if len(keys) > 0 {
		at |= nodeChildren
		first, last := keys[0], keys[len(keys)-1]
		out = append(out, first, last)
		// Characters without a child have a pointer of 0.
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
